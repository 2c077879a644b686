"""HTTP requests to URLs that users entered: the host is resolved, checked, and connected to at the checked address.

Processing services and storage sources have such URLs. With ANTENNA_REFUSE_INTERNAL_ENDPOINTS none of them may lead to
this host, its link or a cloud's metadata, whatever the name resolves to at the time of the request.
"""

import asyncio
import socket
import time
from ipaddress import IPv6Address, ip_address, ip_network
from typing import Any
from urllib.parse import urlsplit

import httpx
from django.conf import settings

from ami.queues.certificates import trusted

#: Networks that a name must not resolve to. Private networks are allowed: a deployment's own services are there.
FORBIDDEN = {
    "this host": ("0.0.0.0/8", "::/128"),
    "loopback": ("127.0.0.0/8", "::1/128"),
    "link-local": ("169.254.0.0/16", "fe80::/10"),
    # Alibaba's, Azure's, Oracle's, Amazon's and Google's, beside 169.254.169.254.
    "cloud metadata": ("100.100.100.200/32", "168.63.129.16/32", "192.0.0.192/32", "fd00:ec2::/64", "fd20:ce::254/128"),
    "multicast": ("224.0.0.0/4", "ff00::/8"),
    "reserved": ("240.0.0.0/4",),
}
_FORBIDDEN = [(kind, ip_network(network)) for kind, networks in FORBIDDEN.items() for network in networks]

#: IPv6 networks whose last 32 bits are an IPv4 address: compatible, mapped and translated ones.
_EMBEDDING = [ip_network(network) for network in ("::/96", "::ffff:0:0/96", "64:ff9b::/96", "64:ff9b:1::/48")]

PORTS = {"http": 80, "https": 443}

#: How many addresses of one name are tried.
MAX_ADDRESSES = 4

#: A pooled connection would be reused by address alone, though another name was checked for it.
NO_KEEPALIVE = httpx.Limits(max_keepalive_connections=0)


class EndpointRefused(Exception):
    """A host resolves to a forbidden address; the message names the setting that allows it."""


def checked_addresses(host: str, port: int) -> list[str]:
    """Return the addresses that ``host`` resolves to now, all of them allowed.

    Raises:
        EndpointRefused: one of them is forbidden, and neither it nor the name is in ANTENNA_ALLOWED_ENDPOINTS.
        OSError, UnicodeError: the name does not resolve.
    """
    return _allowed(host, socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))


def refusal(url: str) -> str:
    """Return why a request to this URL would be refused now, else an empty string; for the validation of input.

    A name that does not resolve yet is accepted: it is checked again at each request.
    """
    if not (settings.ANTENNA_REFUSE_INTERNAL_ENDPOINTS and url.lower().startswith(tuple(PORTS))):
        return ""
    try:
        checked_addresses(*_target(url))
    except EndpointRefused as error:
        return str(error)
    except (OSError, ValueError):
        return ""
    return ""


def client(**options: Any) -> httpx.Client:
    """Return a client for URLs that users entered; requests and redirects may raise `EndpointRefused`."""
    if settings.ANTENNA_REFUSE_INTERNAL_ENDPOINTS:
        options["transport"] = CheckedTransport(limits=NO_KEEPALIVE, verify=trusted())
    return httpx.Client(verify=trusted(), event_hooks={"response": [_refuse_nested_codings]}, **options)


def async_client(**options: Any) -> httpx.AsyncClient:
    """Return the asynchronous version of `client`."""
    if settings.ANTENNA_REFUSE_INTERNAL_ENDPOINTS:
        options["transport"] = AsyncCheckedTransport(limits=NO_KEEPALIVE, verify=trusted())
    return httpx.AsyncClient(verify=trusted(), event_hooks={"response": [_refuse_nested_codings_async]}, **options)


def _refuse_nested_codings(response: httpx.Response) -> None:
    """Refuse a body that is compressed more than once: it is unpacked by the piece, of any size, before it is bounded.

    Of one coding a piece of 64 KiB becomes 64 MiB at most.
    """
    if len(response.headers.get_list("Content-Encoding", split_commas=True)) > 1:
        raise httpx.DecodingError("The response is compressed more than once.", request=response.request)


async def _refuse_nested_codings_async(response: httpx.Response) -> None:
    _refuse_nested_codings(response)


def fetch(
    client: httpx.Client, method: str, url: str, max_bytes: int, seconds: float, **options: Any
) -> httpx.Response:
    """Return the response with its whole body, bounded in size and time.

    Raises:
        httpx.HTTPError: as the client does; also for a decompressed body of more than ``max_bytes``, or one that is
            incomplete after ``seconds``.
    """
    until = time.monotonic() + seconds
    with client.stream(method, url, **options) as response:
        body = bytearray()
        for piece in response.iter_bytes():
            body += piece
            if len(body) > max_bytes:
                raise httpx.ReadError(f"The response has more than {max_bytes} bytes.", request=response.request)
            if time.monotonic() > until:
                raise httpx.ReadTimeout(
                    f"The response took longer than {seconds:.0f} seconds.", request=response.request
                )
        return _buffered(response, body)


async def fetch_async(client: httpx.AsyncClient, url: str, max_bytes: int) -> httpx.Response:
    """Return the same for an asynchronous GET, without a time limit of its own."""
    async with client.stream("GET", url) as response:
        body = bytearray()
        async for piece in response.aiter_bytes():
            body += piece
            if len(body) > max_bytes:
                raise httpx.ReadError(f"The response has more than {max_bytes} bytes.", request=response.request)
        return _buffered(response, body)


def _buffered(response: httpx.Response, body: bytearray) -> httpx.Response:
    content_type = response.headers.get("Content-Type", "application/json")
    headers = {"Content-Type": content_type}
    return httpx.Response(response.status_code, headers=headers, content=bytes(body), request=response.request)


class CheckedTransport(httpx.HTTPTransport):
    """Connects to a checked address without a proxy, with the name in ``Host`` and in TLS."""

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send the request to the first address that accepts the connection."""
        host, port = _target(str(request.url))
        failure: Exception = httpx.ConnectError("The name has no address.")
        try:
            addresses = checked_addresses(host, port)
        except (OSError, UnicodeError) as error:
            raise httpx.ConnectError(str(error)) from error
        for address in addresses:
            try:
                return super().handle_request(_pinned(request, host, address))
            except (httpx.ConnectError, httpx.ConnectTimeout) as error:
                failure = error
        raise failure


class AsyncCheckedTransport(httpx.AsyncHTTPTransport):
    """The asynchronous version of `CheckedTransport`."""

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send the request to the first address that accepts the connection."""
        host, port = _target(str(request.url))
        failure: Exception = httpx.ConnectError("The name has no address.")
        try:
            addrinfos = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            raise httpx.ConnectError(str(error)) from error
        for address in _allowed(host, addrinfos):
            try:
                return await super().handle_async_request(_pinned(request, host, address))
            except (httpx.ConnectError, httpx.ConnectTimeout) as error:
                failure = error
        raise failure


def pin_s3(client: Any) -> None:
    """Check each request of a boto3 client before it is sent, including retries and hosts of other regions.

    Over http it goes to the checked address. Over https the library resolves the name again: an address other than the
    checked one gets a connection, but no request unless it has a certificate for the name.
    """
    if settings.ANTENNA_REFUSE_INTERNAL_ENDPOINTS:
        client.meta.events.register_first("before-send.s3", _pin_s3)


def _pin_s3(request: Any, **_: Any) -> None:
    host, port = _target(request.url)
    parts = urlsplit(request.url)
    addresses = checked_addresses(host, port)
    if parts.scheme == "http":
        request.headers["Host"] = parts.netloc.rpartition("@")[2]
        request.url = parts._replace(netloc=f"{_bracketed(addresses[0])}:{port}").geturl()


def _target(url: str) -> tuple[str, int]:
    parts = urlsplit(url)
    return parts.hostname or "", parts.port or PORTS.get(parts.scheme, 0)


def _pinned(request: httpx.Request, host: str, address: str) -> httpx.Request:
    extensions = {"sni_hostname": host, **request.extensions}
    url = request.url.copy_with(host=address)
    return httpx.Request(request.method, url, headers=request.headers, stream=request.stream, extensions=extensions)


def _allowed(host: str, addrinfos: list[Any]) -> list[str]:
    """Return the addresses of getaddrinfo's result; raise `EndpointRefused` if one is forbidden."""
    addresses = list(dict.fromkeys(str(info[4][0]) for info in addrinfos))[:MAX_ADDRESSES]
    if host.lower().rstrip(".") in settings.ANTENNA_ALLOWED_ENDPOINTS:
        return addresses
    for address in addresses:
        if kind := _forbidden(address):
            raise EndpointRefused(
                f"{host} is at {address} ({kind}), which is never called. If intended, list the name or the address in "
                "ANTENNA_ALLOWED_ENDPOINTS."
            )
    return addresses


def _forbidden(address: str) -> str:
    """Return the kind of a forbidden address; empty for other addresses and those that the setting allows."""
    allowed = _allowed_networks()
    for candidate in _with_embedded(address):
        if any(candidate in network for network in allowed):
            continue
        for kind, network in _FORBIDDEN:
            if candidate in network:
                return kind
    return ""


def _with_embedded(address: str) -> list[Any]:
    """Return the address and the IPv4 addresses embedded in it."""
    parsed = ip_address(address.partition("%")[0])
    embedded: list[Any] = []
    if isinstance(parsed, IPv6Address):
        if any(parsed in network for network in _EMBEDDING):
            embedded.append(ip_address(int(parsed) & 0xFFFFFFFF))
        embedded += [each for each in (parsed.sixtofour, *(parsed.teredo or ())) if each]
    return [parsed, *embedded]


def _allowed_networks() -> list[Any]:
    networks = []
    for entry in settings.ANTENNA_ALLOWED_ENDPOINTS:
        try:
            networks.append(ip_network(entry))
        except ValueError:
            continue
    return networks


def _bracketed(address: str) -> str:
    return f"[{address}]" if ":" in address else address
