"""The client address of a request, read from X-Forwarded-For as far as ANTENNA_PROXIES trusts it."""

import ipaddress
from typing import Any

from django.conf import settings


def address_of(request: Any) -> str:
    """Return the client's address; empty if there is none (a Unix socket).

    Behind n trusted proxies it is the n-th entry of X-Forwarded-For from the right; the client controls the entries
    before it. Without a proxy, or if the entry is not an address, it is the address of the connection.
    """
    connection = str(request.META.get("REMOTE_ADDR") or "")
    proxies = settings.ANTENNA_PROXIES
    forwarded = str(request.META.get("HTTP_X_FORWARDED_FOR") or "")
    if not proxies or not forwarded:
        return connection
    entries = forwarded.rsplit(",", proxies)[-proxies:]
    return _address(entries[0]) or connection


def network_of(address: str) -> str:
    """Return what counts as one client: an IPv4 address, or the /64 of an IPv6 address, all of which one host has."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address
    if isinstance(parsed, ipaddress.IPv4Address):
        return str(parsed)
    if parsed.ipv4_mapped:
        return str(parsed.ipv4_mapped)
    return str(ipaddress.ip_network((int(parsed) >> 64 << 64, 64)))


def _address(entry: str) -> str:
    """Return the address in one entry, without brackets and port; empty if it is not an address."""
    text = entry.strip()[:64]
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        return ""
