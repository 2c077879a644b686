"""A server that takes what Sentry's library sends, on a port of this machine."""

import gzip
import json
import threading
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class SentryServer:
    """``dsn`` leads here; ``bodies`` are the envelopes as they came, unpacked."""

    dsn: str
    bodies: list[bytes] = field(default_factory=list)

    def events(self) -> list[dict[str, Any]]:
        """Return the events of all envelopes, the oldest first."""
        found = []
        for body in list(self.bodies):
            lines = body.splitlines()
            for header, item in zip(lines[1::2], lines[2::2], strict=False):
                if json.loads(header).get("type") == "event":
                    found.append(json.loads(item))
        return found


@contextmanager
def sentry_server() -> Iterator[SentryServer]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:  # noqa: N802 - the library's name
            body = self.rfile.read(int(self.headers["Content-Length"]))
            kind = self.headers.get("Content-Encoding", "")
            found.bodies.append({"gzip": gzip.decompress, "deflate": zlib.decompress}.get(kind, bytes)(body))
            self.send_response(200)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        found = SentryServer(f"http://public@127.0.0.1:{server.server_port}/7")
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield found
        finally:
            server.shutdown()
            thread.join()
