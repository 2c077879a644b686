"""A proxy in front of the API that loses requests and answers as networks do; alone: ``python -m`` this module.

What it does to a request follows from the seed and the request's number among those that may be lost.
"""

import argparse
import http.client
import random
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

#: 503 before forwarding; no answer after forwarding; forwarded twice; a claim of images whose answer is lost.
REFUSED, CUT, DOUBLED, CLAIMED = KINDS = ("refused", "cut", "doubled", "claimed")
APPLIES = {"tasks": (REFUSED, CLAIMED), "result": (REFUSED, CUT, DOUBLED)}

#: Headers that belong to one connection.
OWN_HEADERS = {"connection", "keep-alive", "transfer-encoding", "host"}


class LosingProxy(ThreadingHTTPServer):
    """A proxy on a free loopback port.

    ``share`` of the requests for tasks and of results are lost in one of the ways of `APPLIES`, the rarest so far
    first, each at most ``most`` times. ``requests`` counts the requests by method, path and status, 0 for no answer.
    """

    daemon_threads = True

    def __init__(self, target: str, *, seed: int = 1, share: float = 0.0, most: int = 20, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.target = urlsplit(target)
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        self.done: Counter[str] = Counter(dict.fromkeys(KINDS, 0))
        self.requests: Counter[tuple[str, str, int]] = Counter()
        self.queries: Counter[str] = Counter()
        self._seed, self._share, self._most = seed, share, most
        self._number = 0
        self._lock = threading.Lock()

    def fault(self, method: str, path: str) -> str | None:
        """Return what is done to this request; None for a request that is forwarded and answered."""
        parts = urlsplit(path).path.rstrip("/").rsplit("/", 1)
        kinds = APPLIES.get(parts[-1], ()) if method == "POST" else ()
        if not kinds:
            return None
        with self._lock:
            self._number += 1
            chance = random.Random(f"{self._seed}-{self._number}").random()
            kind = min(kinds, key=lambda each: (self.done[each], kinds.index(each)))
            if chance >= self._share or self.done[kind] >= self._most:
                return None
            self.done[kind] += 1
            return kind

    def saw(self, method: str, path: str, status: int) -> None:
        """Count a request."""
        parts = urlsplit(path)
        known = "/".join("{id}" if part.isdecimal() else part for part in parts.path.split("/"))
        with self._lock:
            self.requests[method, known, status] += 1
            self.queries.update(f"{known}?{pair.partition('=')[0]}" for pair in parts.query.split("&") if pair)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hangs up is no error of the proxy."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: LosingProxy

    def _handle(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        kind = self.server.fault(self.command, self.path)
        if kind == REFUSED:
            self._answer(503, [("Retry-After", "0")], b'{"detail": "lost by the proxy"}')
            return
        if kind == DOUBLED:
            self._forward(body)
        status, headers, answer = self._forward(body)
        if kind in (CUT, CLAIMED):
            self.server.saw(self.command, self.path, 0)
            self.close_connection = True
            self.connection.close()
            return
        self._answer(status, headers, answer)

    def _forward(self, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        target = self.server.target
        connection = http.client.HTTPConnection(target.hostname or "", target.port, timeout=120)
        try:
            headers = {name: value for name, value in self.headers.items() if name.lower() not in OWN_HEADERS}
            headers["Host"] = self.headers.get("Host", target.netloc)
            connection.request(self.command, self.path, body or None, headers)
            answer = connection.getresponse()
            kept = [(name, value) for name, value in answer.getheaders() if name.lower() not in OWN_HEADERS]
            return answer.status, kept, answer.read()
        finally:
            connection.close()

    def _answer(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
        self.server.saw(self.command, self.path, status)
        self.send_response_only(status)
        for name, value in headers:
            if name.lower() != "content-length":
                self.send_header(name, value)
        if status != 204:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = do_HEAD = _handle

    def log_message(self, *_: Any) -> None:
        """Print nothing."""


@contextmanager
def running(target: str, **options: Any) -> Iterator[LosingProxy]:
    """Serve a proxy of ``target`` in a thread for a while; ``options`` are those of `LosingProxy`."""
    proxy = LosingProxy(target, **options)
    thread = threading.Thread(target=proxy.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield proxy
    finally:
        proxy.shutdown()
        proxy.server_close()
        thread.join(10)


def main() -> None:
    """Serve until interrupted, and print what was lost."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target", help="the API's address, for example http://127.0.0.1:8000")
    parser.add_argument("--port", type=int, default=8001, help="the proxy's own port on the loopback interface")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--share", type=float, default=0.2, help="of the requests for tasks and of results")
    parser.add_argument("--most", type=int, default=20, help="faults of one kind")
    options = vars(parser.parse_args())
    proxy = LosingProxy(options.pop("target"), **options)
    print(f"{proxy.url} loses requests to {proxy.target.geturl()}", flush=True)
    try:
        proxy.serve_forever()
    except KeyboardInterrupt:
        print(dict(proxy.done))


if __name__ == "__main__":
    main()
