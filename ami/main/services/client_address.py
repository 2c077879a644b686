"""Who a request comes from: the address that the setting ANTENNA_PROXIES lets us believe."""

import ipaddress
from typing import Any

from django.conf import settings


def address_of(request: Any) -> str:
    """Return the caller's address, an empty text where there is none (a Unix socket).

    Behind n proxies of our own it is the n-th entry of X-Forwarded-For from the right; whatever stands before it is the
    caller's to invent. With no proxy, or an entry that is no address, it is the connection's own.
    """
    connection = str(request.META.get("REMOTE_ADDR") or "")
    proxies = settings.ANTENNA_PROXIES
    forwarded = str(request.META.get("HTTP_X_FORWARDED_FOR") or "")
    if not proxies or not forwarded:
        return connection
    entries = forwarded.rsplit(",", proxies)[-proxies:]
    return _address(entries[0]) or connection


def network_of(address: str) -> str:
    """Return what counts as one caller: an IPv4 address, or the /64 of an IPv6 address, which one machine has whole."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return address
    if isinstance(found, ipaddress.IPv4Address):
        return str(found)
    if found.ipv4_mapped:
        return str(found.ipv4_mapped)
    return str(ipaddress.ip_network((int(found) >> 64 << 64, 64)))


def _address(entry: str) -> str:
    """Return the address of one entry without brackets and port; empty when it is none."""
    text = entry.strip()[:64]
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        return ""
