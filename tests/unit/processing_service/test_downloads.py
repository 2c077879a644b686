"""Pictures over connections that a server closes, and from servers that are down: whose fault it is."""

import gzip
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from processing_service.backoff import Backoff
from processing_service.downloads import Downloader, DownloadError, DownloadLimits, NetworkError

ONE = Backoff(attempts=1)
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nmoth"


@contextmanager
def server(*answered: int) -> Iterator[str]:
    """A server whose connections answer so many requests each, and are closed when the next one has arrived."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            for requests in answered:
                connection, _ = listener.accept()
                with connection:
                    for _ in range(requests):
                        connection.recv(65_536)
                        connection.sendall(ANSWER)
                    connection.recv(65_536)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/picture"
        thread.join(5)


def test_picture_is_fetched_again_when_the_server_closed_the_connection() -> None:
    with server(1, 1) as url, Downloader() as downloader:
        assert [downloader.fetch(url), downloader.fetch(url)] == [b"moth", b"moth"]
        downloader.close()


def test_server_that_closes_every_connection_is_named() -> None:
    with server(0, 0) as url, Downloader() as downloader, pytest.raises(NetworkError, match="RemoteProtocolError"):
        downloader.fetch(url, ONE)


@contextmanager
def answers(*texts: bytes) -> Iterator[tuple[str, list[bytes]]]:
    """A server that gives one connection each of these answers, and closes it; the list fills with the requests."""
    seen: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            for text in texts:
                connection, _ = listener.accept()
                with connection:
                    seen.append(connection.recv(65_536))
                    connection.sendall(text)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/picture?secret=abc", seen
        thread.join(5)


def status(number: int, *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {number} Answer", "Content-Length: 0", "Connection: close", *headers, "", ""]
    return "\r\n".join(lines).encode()


FAULTS = [
    *[(status(number), NetworkError) for number in (408, 425, 429, 500, 502, 503, 504, 507)],
    *[(status(number), DownloadError) for number in (204, 400, 401, 403, 404, 405, 410, 416, 451)],
    (status(302, "Location: ftp://host/picture"), DownloadError),
    (b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\nmoth", NetworkError),
    (b"HTTP/1.1 200 OK\r\nContent-Length: 99999\r\n\r\n", DownloadError),
    (b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 4\r\n\r\nmoth", DownloadError),
]


@pytest.mark.parametrize(("answer", "fault"), FAULTS, ids=lambda value: str(value)[:60])
def test_answer_is_the_networks_fault_or_the_pictures(answer: bytes, fault: type[Exception]) -> None:
    limits = DownloadLimits(max_bytes=10_000)
    with answers(answer) as (url, _), Downloader(limits) as downloader, pytest.raises(fault) as raised:
        downloader.fetch(url, ONE)
    assert type(raised.value) is fault
    assert "secret" not in str(raised.value)


def test_picture_that_is_compressed_twice_is_refused_before_it_is_unpacked() -> None:
    twice = gzip.compress(gzip.compress(bytes(50_000)))
    head = f"HTTP/1.1 200 OK\r\nContent-Encoding: gzip, gzip\r\nContent-Length: {len(twice)}\r\n\r\n"
    refused = pytest.raises(DownloadError, match="compressed more than once")
    with answers(head.encode() + twice) as (url, _), Downloader() as downloader, refused:
        downloader.fetch(url, ONE)


@pytest.mark.parametrize("url", ["http://127.0.0.1:9/none.jpg", "http://no-such-host.invalid/none.jpg"])
def test_refused_connection_and_unknown_name_are_the_networks_fault(url: str) -> None:
    with Downloader() as downloader, pytest.raises(NetworkError):
        downloader.fetch(url, ONE)


def test_slow_server_is_the_networks_fault() -> None:
    downloader = Downloader(DownloadLimits(quiet_seconds=0.05))
    with socket.create_server(("127.0.0.1", 0)) as silent, pytest.raises(NetworkError, match="ReadTimeout"):
        downloader.fetch(f"http://127.0.0.1:{silent.getsockname()[1]}/picture", ONE)
    downloader.close()


def test_busy_server_is_asked_again_after_its_retry_after() -> None:
    with answers(status(503), status(429, "Retry-After: 1"), ANSWER) as (url, seen), Downloader() as downloader:
        began = time.monotonic()
        assert downloader.fetch(url, Backoff(attempts=3, first_seconds=0.01)) == b"moth"
        assert time.monotonic() - began >= 1
    assert len(seen) == 3


def test_missing_picture_is_asked_for_once() -> None:
    with answers(status(404)) as (url, seen), Downloader() as downloader, pytest.raises(DownloadError, match="404"):
        downloader.fetch(url)
    assert len(seen) == 1


@pytest.mark.parametrize(
    ("limits", "retries", "attempts"),
    [
        (DownloadLimits(), Backoff(attempts=3, first_seconds=0.01), 3),
        (DownloadLimits(retry_seconds=0), Backoff(attempts=3, first_seconds=0.01), 1),
    ],
    ids=["attempts", "seconds"],
)
def test_retries_end(limits: DownloadLimits, retries: Backoff, attempts: int) -> None:
    downloader = Downloader(limits)
    with answers(*[status(503)] * attempts) as (url, seen), pytest.raises(NetworkError, match="answered 503"):
        downloader.fetch(url, retries)
    downloader.close()
    assert len(seen) == attempts


def test_stopping_ends_the_wait_for_the_next_attempt() -> None:
    stop = threading.Event()
    stop.set()
    with answers(status(503)) as (url, seen), Downloader(stop=stop) as downloader, pytest.raises(NetworkError):
        downloader.fetch(url)
    assert len(seen) == 1
