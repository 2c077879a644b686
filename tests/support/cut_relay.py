"""A way to a server that can be cut: it then refuses connections, or what is sent through it arrives nowhere."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from urllib.parse import urlsplit, urlunsplit


class CutRelay:
    """Listens on a loopback port of its own and passes each connection on to ``host:port``.

    After `cut` no connection is closed and nothing arrives; after `refuse` all are closed and none is accepted.
    """

    def __init__(self, host: str, port: int) -> None:
        self._target = host, port
        self._open = threading.Event()
        self._open.set()
        self._sockets: list[socket.socket] = []
        self._address = ("127.0.0.1", 0)
        self._listen()

    def url(self, url: str) -> str:
        """Return the URL of the server by way of this relay."""
        parts = urlsplit(url)
        login, at, _ = parts.netloc.rpartition("@")
        return urlunsplit(parts._replace(netloc=f"{login}{at}127.0.0.1:{self._address[1]}"))

    def cut(self) -> None:
        self._open.clear()

    def refuse(self) -> None:
        self.close()

    def mend(self) -> None:
        self._open.set()
        if self._listener.fileno() == -1:
            self._listen()

    def close(self) -> None:
        """Close everything."""
        self._open.set()
        for each in (self._listener, *self._sockets):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        self._sockets.clear()

    def _listen(self) -> None:
        self._listener = socket.create_server(self._address)
        self._address = self._listener.getsockname()
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def _accept(self, listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                inner, _ = listener.accept()
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
