"""A server on loopback that keeps every request and answers what the test says."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple


class Request(NamedTuple):
    """One request as it came; header names in lower case."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


class Answer(NamedTuple):
    """What is sent back. ``length`` is the promised length, where the body is to end early."""

    status: int = 200
    headers: dict[str, str] = {}
    body: bytes = b""
    length: int | None = None


class Recorder:
    """``answer`` goes to every request; None keeps it waiting until the next `begin`."""

    def __init__(self) -> None:
        self.url = ""
        self.let_go = threading.Event()
        self.begin()

    def begin(self) -> None:
        """Forget everything, for another test."""
        self.let_go.set()
        self.let_go = threading.Event()
        self.requests: list[Request] = []
        self.answer: Answer | None = Answer()

    def take(self) -> list[Request]:
        """Return the requests since the last time."""
        taken, self.requests = self.requests, []
        return taken


@contextmanager
def recording() -> Iterator[Recorder]:
    """Run a server on a free port."""
    recorder = Recorder()

    class Handler(BaseHTTPRequestHandler):
        def do(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            headers = {name.lower(): value for name, value in self.headers.items()}
            recorder.requests.append(Request(self.command, self.path, headers, body))
            answer, let_go = recorder.answer, recorder.let_go
            if answer is None:
                let_go.wait(60)
                self.close_connection = True
                return
            self.send_response(answer.status)
            for name, value in answer.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(answer.body) if answer.length is None else answer.length))
            self.end_headers()
            self.wfile.write(answer.body)

        do_GET = do_PUT = do_POST = do_DELETE = do  # noqa: N815 - the names that the server looks for

        def log_message(self, *args: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    recorder.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield recorder
    finally:
        recorder.begin()
        server.shutdown()
        server.server_close()
        thread.join(10)
