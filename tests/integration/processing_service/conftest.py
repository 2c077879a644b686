"""A real server of pictures and real uvicorn servers, on free loopback ports."""

import io
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import uvicorn
from PIL import Image

DEADLINE_SECONDS = 60


def wait_until(condition, what: str):
    """Wait for a condition with a deadline."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    tick = threading.Event()
    while not condition():
        assert time.monotonic() < deadline, f"not in {DEADLINE_SECONDS} s: {what}"
        tick.wait(0.02)


@contextmanager
def served(app, port: int = 0) -> Iterator[str]:
    """Serve an ASGI app with uvicorn in a thread, on a free port if none is given; yield its address."""
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, lifespan="on", ws="none"))
    with socket.create_server(("127.0.0.1", port)) as listening:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            wait_until(lambda: server.started, "uvicorn has started")
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(DEADLINE_SECONDS)


def jpeg(image: Image.Image) -> bytes:
    held = io.BytesIO()
    image.save(held, "JPEG", quality=92)
    return held.getvalue()


def sheet_with_insect() -> bytes:
    sheet = Image.new("RGB", (1280, 720), (225, 225, 220))
    sheet.paste((122, 80, 44), (300, 200, 390, 270))
    return jpeg(sheet)


class _Pictures(BaseHTTPRequestHandler):
    bodies: dict[str, bytes] = {}
    redirects: dict[str, str] = {}

    def do_GET(self):
        path = self.path.split("?")[0]
        if path in self.redirects:
            self.send_response(302)
            self.send_header("Location", self.redirects[path])
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        body = self.bodies.get(path)
        self.send_response(200 if body is not None else 404)
        if path != "/undeclared.jpg":
            self.send_header("Content-Length", str(len(body or b"")))
        self.end_headers()
        self.wfile.write(body or b"")

    def log_message(self, *arguments):
        """Stay quiet."""


@pytest.fixture(scope="session")
def pictures() -> Iterator[str]:
    """The address of a real HTTP server of pictures, good and bad."""
    good = sheet_with_insect()
    _Pictures.bodies = {
        "/insect.jpg": good,
        "/empty-sheet.jpg": jpeg(Image.new("RGB", (1280, 720), (225, 225, 220))),
        "/cut.jpg": good[: len(good) // 2],
        "/text.jpg": b"hello",
        "/large.jpg": bytes(300_000),
        "/undeclared.jpg": bytes(300_000),
    }
    _Pictures.redirects = {
        "/moved.jpg": "/insect.jpg",
        "/to-file.jpg": "file:///etc/passwd",
        "/round.jpg": "/round.jpg",
    }
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Pictures)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join(DEADLINE_SECONDS)
    server.server_close()


@pytest.fixture(scope="session")
def serve():
    """The function that serves an app; see `served`."""
    return served


@pytest.fixture(scope="session")
def until():
    """The function that waits for a condition; see `wait_until`."""
    return wait_until
