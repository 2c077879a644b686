"""Pictures over connections that a server closes between two requests."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from processing_service.downloads import Downloader, DownloadError

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
    with server(0, 0) as url, Downloader() as downloader, pytest.raises(DownloadError, match="RemoteProtocolError"):
        downloader.fetch(url)
