"""A way to a server that can be cut: what is sent through it then arrives nowhere, and no connection is closed."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from urllib.parse import urlsplit, urlunsplit


class CutRelay:
    """Listens on a loopback port of its own and passes each connection on to ``host:port`` until `cut`."""

    def __init__(self, host: str, port: int) -> None:
        self._target = host, port
        self._open = threading.Event()
        self._open.set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._sockets: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def url(self, url: str) -> str:
        """Return the URL of the server by way of this relay."""
        parts = urlsplit(url)
        login, at, _ = parts.netloc.rpartition("@")
        return urlunsplit(parts._replace(netloc=f"{login}{at}127.0.0.1:{self._listener.getsockname()[1]}"))

    def cut(self) -> None:
        self._open.clear()

    def mend(self) -> None:
        self._open.set()

    def close(self) -> None:
        """Close everything."""
        self._open.set()
        for each in (self._listener, *self._sockets):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                inner, _ = self._listener.accept()
                outer = socket.create_connection(self._target)
                self._sockets += [inner, outer]
                for one, other in ((inner, outer), (outer, inner)):
                    threading.Thread(target=self._pump, args=(one, other), daemon=True).start()

    def _pump(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                self._open.wait()
                target.sendall(data)
            self._open.wait()
            target.shutdown(socket.SHUT_WR)


@contextmanager
def cut_relay(url: str, port: int) -> Iterator[CutRelay]:
    """Make a relay to the server of a URL, whose port is ``port`` where it names none."""
    parts = urlsplit(url)
    relay = CutRelay(parts.hostname or "127.0.0.1", parts.port or port)
    try:
        yield relay
    finally:
        relay.close()
