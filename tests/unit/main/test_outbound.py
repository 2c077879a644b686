"""Requests to URLs that users entered: the resolved address is checked, and connected to."""

import asyncio
import gzip
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx
import pytest

from ami.main.models import S3StorageSource
from ami.main.services import outbound
from ami.main.services.outbound import EndpointRefused, checked_addresses
from ami.main.services.sources import SourceError, pictures
from tests.support import s3_server
from tests.support.product import factories

FORBIDDEN = {
    "127.0.0.1": "loopback",
    "127.8.8.8": "loopback",
    "localhost": "loopback",
    "127.1": "loopback",
    "2130706433": "loopback",
    "0x7f000001": "loopback",
    "0177.0.0.1": "loopback",
    "0": "this host",
    "0.0.0.0": "this host",
    "169.254.169.254": "link-local",
    "2852039166": "link-local",
    "168.63.129.16": "cloud metadata",
    "100.100.100.200": "cloud metadata",
    "224.0.0.1": "multicast",
    "255.255.255.255": "reserved",
    "::": "this host",
    "::1": "loopback",
    "::ffff:127.0.0.1": "loopback",
    "::ffff:169.254.169.254": "link-local",
    "64:ff9b::169.254.169.254": "link-local",
    "2002:7f00:1::": "loopback",
    "::127.0.0.1": "loopback",
    "fe80::1": "link-local",
    "fe80::1%1": "link-local",
    "fd00:ec2::254": "cloud metadata",
    "ff02::1": "multicast",
}
ALLOWED = ("10.1.2.3", "172.18.0.5", "192.168.1.1", "93.184.216.34", "fd12::5", "2606:2800:220:1::1", "::ffff:10.0.0.1")


@pytest.fixture(autouse=True)
def enforced(settings):
    settings.ANTENNA_REFUSE_INTERNAL_ENDPOINTS = True
    settings.ANTENNA_ALLOWED_ENDPOINTS = ()


class Server(ThreadingHTTPServer):
    """Serves on one loopback address and records the Host of each request; may redirect."""

    def __init__(self, address: str, port: int = 0, redirect: str = "", coding: str = "identity") -> None:
        self.hosts: list[str] = []

        class Handler(BaseHTTPRequestHandler):
            def do_GET(handler) -> None:  # noqa: N805
                self.hosts.append(handler.headers["Host"])
                handler.send_response(307 if redirect else 200)
                if redirect:
                    handler.send_header("Location", redirect)
                handler.send_header("Content-Encoding", coding)
                handler.send_header("Content-Length", "2")
                handler.end_headers()
                handler.wfile.write(b"ok")

            def log_message(handler, *args: object) -> None:  # noqa: N805
                pass

        super().__init__((address, port), Handler)
        self.port = self.server_address[1]


@pytest.fixture
def serve() -> Iterator:
    servers = []

    def serve(address: str = "127.0.0.1", **options) -> Server:
        server = Server(address, **options)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        servers.append((server, thread))
        return server

    yield serve
    for server, thread in servers:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture
def names(monkeypatch):
    """Names with the addresses of successive resolutions; the last list repeats."""
    known: dict[str, list[list[str]]] = {}
    real = socket.getaddrinfo

    def getaddrinfo(host, port, *args, **options):
        if (name := host.decode() if isinstance(host, bytes) else host) not in known:
            return real(host, port, *args, **options)
        answers = known[name]
        addresses = answers.pop(0) if len(answers) > 1 else answers[0]
        return [found for address in addresses for found in real(address, port, *args, **options)]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    return known


def get(url: str, **options) -> httpx.Response:
    with outbound.client(timeout=5, **options) as client:
        return client.get(url)


def async_get(url: str, **options) -> httpx.Response:
    async def call() -> httpx.Response:
        async with outbound.async_client(timeout=5, **options) as client:
            return await client.get(url)

    return asyncio.run(call())


BOTH = pytest.mark.parametrize("call", [get, async_get])


def test_internal_address_is_refused_in_every_spelling():
    for host, kind in FORBIDDEN.items():
        with pytest.raises(EndpointRefused, match=rf"\({kind}\).*ANTENNA_ALLOWED_ENDPOINTS"):
            checked_addresses(host, 80)


def test_public_and_private_addresses_are_called():
    assert {host: checked_addresses(host, 80) for host in ALLOWED} == {host: [host] for host in ALLOWED}


@BOTH
def test_refused_call_connects_to_nothing(serve, call):
    server = serve()
    for host in ("127.0.0.1", "localhost", "127.1", "[::ffff:127.0.0.1]"):
        with pytest.raises(EndpointRefused, match="loopback"):
            call(f"http://{host}:{server.port}/")
    assert server.hosts == []


@BOTH
def test_one_forbidden_address_among_several_refuses_the_name(names, call):
    names["mixed.example"] = [["93.184.216.34", "169.254.169.254"]]
    with pytest.raises(EndpointRefused, match=r"mixed\.example is at 169\.254\.169\.254 \(link-local\)"):
        call("http://mixed.example/")


@BOTH
def test_connection_goes_to_the_address_that_was_checked(serve, names, settings, call):
    """DNS rebinding has no effect."""
    settings.ANTENNA_ALLOWED_ENDPOINTS = ("127.0.0.2",)
    good = serve("127.0.0.2")
    evil = serve("127.0.0.1", port=good.port)
    names["rebind.example"] = [["127.0.0.2"], ["127.0.0.1"]]
    assert call(f"http://rebind.example:{good.port}/").text == "ok"
    with pytest.raises(EndpointRefused):
        call(f"http://rebind.example:{good.port}/")
    assert (good.hosts, evil.hosts) == ([f"rebind.example:{good.port}"], [])


@BOTH
def test_redirect_is_checked_like_the_first_address(serve, settings, call):
    settings.ANTENNA_ALLOWED_ENDPOINTS = ("127.0.0.2",)
    hidden = serve("127.0.0.1")
    first = serve("127.0.0.2", redirect=f"http://127.0.0.1:{hidden.port}/")
    assert call(f"http://127.0.0.2:{first.port}/").status_code == 307, "not followed unless asked"
    with pytest.raises(EndpointRefused, match=r"127\.0\.0\.1"):
        call(f"http://127.0.0.2:{first.port}/", follow_redirects=True)
    assert hidden.hosts == []


@BOTH
def test_next_address_is_tried_when_one_does_not_answer(serve, names, settings, call):
    settings.ANTENNA_ALLOWED_ENDPOINTS = ("127.0.0.0/8",)
    server = serve("127.0.0.2")
    names["two.example"] = [["127.0.0.3", "127.0.0.2"]]
    assert call(f"http://two.example:{server.port}/").text == "ok"
    names["none.example"] = [["127.0.0.3"]]
    with pytest.raises(httpx.ConnectError):
        call(f"http://none.example:{server.port}/")


@BOTH
def test_proxy_of_the_environment_is_not_asked(serve, monkeypatch, call):
    proxy = serve()
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
    with pytest.raises(EndpointRefused):
        call("http://169.254.169.254/latest/meta-data/")
    assert proxy.hosts == []


@BOTH
def test_unknown_name_is_a_connection_error(names, call, monkeypatch):
    def unknown(*args, **options):
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    with pytest.raises(httpx.ConnectError, match="not known"):
        call("http://unknown.example/")
    assert outbound.refusal("http://unknown.example/") == ""


def test_tls_is_asked_for_the_name_and_not_for_its_address(names, monkeypatch):
    names["secure.example"] = [["93.184.216.34"]]
    sent: list[httpx.Request] = []
    monkeypatch.setattr(
        httpx.HTTPTransport, "handle_request", lambda self, request: sent.append(request) or httpx.Response(200)
    )
    get("https://secure.example/a?b=1")
    [request] = sent
    assert str(request.url) == "https://93.184.216.34/a?b=1"
    assert (request.headers["Host"], request.extensions["sni_hostname"]) == ("secure.example", "secure.example")


@pytest.mark.parametrize("entry", ["minio.example", "127.0.0.1", "127.0.0.0/8"])
def test_allow_list_has_names_addresses_and_networks(names, settings, entry):
    names["minio.example"] = [["127.0.0.1"]]
    settings.ANTENNA_ALLOWED_ENDPOINTS = (entry,)
    assert checked_addresses("minio.example", 80) == ["127.0.0.1"]
    with pytest.raises(EndpointRefused):
        checked_addresses("169.254.169.254", 80)


def test_nothing_is_refused_without_the_setting(settings, serve):
    settings.ANTENNA_REFUSE_INTERNAL_ENDPOINTS = False
    server = serve()
    assert get(f"http://127.0.0.1:{server.port}/").text == async_get(f"http://127.0.0.1:{server.port}/").text == "ok"
    assert outbound.refusal("http://169.254.169.254/") == ""


@pytest.fixture(scope="module")
def objects() -> Iterator[s3_server.S3Server]:
    with s3_server.running() as server:
        yield server


def listed(endpoint: str, bucket: str) -> list[str]:
    source = S3StorageSource.objects.create(
        name="Bucket", bucket=bucket, endpoint_url=endpoint, access_key="testing-id", secret_key="testing-secret"
    )
    return [found.path for found in pictures(factories.station(data_source=source))]


@pytest.mark.processes
def test_bucket_is_listed_at_the_checked_address_only(db, objects, names, settings):
    bucket = objects.make_bucket("outbound")
    httpx.put(f"{objects.endpoint}/{bucket}/20260601220000.jpg", content=b"x").raise_for_status()
    port = objects.endpoint.rsplit(":", 1)[1]
    names["objects"] = [["127.0.0.1"]]
    for endpoint in (objects.endpoint, f"http://objects:{port}", "http://169.254.169.254"):
        with pytest.raises(SourceError, match=r"Storage source 'Bucket': .*ANTENNA_ALLOWED_ENDPOINTS"):
            listed(endpoint, bucket)
    settings.ANTENNA_ALLOWED_ENDPOINTS = ("127.0.0.1",)
    names["objects"] = [["127.0.0.1"], ["169.254.169.254"]]
    assert listed(f"http://objects:{port}", bucket) == ["20260601220000.jpg"]


def test_redirect_of_a_storage_source_is_not_followed(db, serve, settings):
    settings.ANTENNA_ALLOWED_ENDPOINTS = ("127.0.0.2",)
    hidden = serve("127.0.0.1")
    first = serve("127.0.0.2", redirect=f"http://127.0.0.1:{hidden.port}/")
    with pytest.raises(Exception, match="307"):
        listed(f"http://127.0.0.2:{first.port}", "bucket")
    assert first.hosts
    assert hidden.hosts == []


def test_response_is_bounded_in_decompressed_bytes_and_in_time():
    packed = gzip.compress(b"x" * 1024**2)

    def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, headers={"Content-Encoding": "gzip"}, stream=httpx.ByteStream(packed))

    with httpx.Client(transport=httpx.MockTransport(answer)) as client:
        whole = outbound.fetch(client, "GET", "http://service.example/", 1024**2, 10)
        assert len(whole.content) == 1024**2
        with pytest.raises(httpx.ReadError, match="more than 1000 bytes"):
            outbound.fetch(client, "GET", "http://service.example/", 1000, 10)
        with pytest.raises(httpx.ReadTimeout):
            outbound.fetch(client, "GET", "http://service.example/", 1024**2, -1)


@BOTH
@pytest.mark.parametrize("codings", ["gzip, gzip", "identity,gzip , deflate"])
def test_body_that_is_compressed_twice_is_refused_unread(serve, settings, call, codings):
    """Of one coding a piece becomes a thousand times larger at most, of two a million times."""
    settings.ANTENNA_ALLOWED_ENDPOINTS = ("127.0.0.1",)
    server = serve(coding=codings)
    for is_checked in (True, False):
        settings.ANTENNA_REFUSE_INTERNAL_ENDPOINTS = is_checked
        with pytest.raises(httpx.DecodingError, match="compressed more than once"):
            call(f"http://127.0.0.1:{server.port}/")
