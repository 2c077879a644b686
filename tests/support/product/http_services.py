"""Processing services as real HTTP servers with responses set by the test."""

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from ami.ml.models import ProcessingService
from tests.support.product.job_setup import World

Answer = Callable[[str, object], tuple[int, object]]


@contextmanager
def served(answer: Answer, port: int = 0) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            code, body = answer(self.path, json.loads(self.rfile.read(length) or b"null"))
            data = json.dumps(body).encode()
            self.send_response(code)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_POST = do_GET

        def log_message(self, *args: object) -> None:
            pass

    with listening(Handler, port) as url:
        yield url


@contextmanager
def files_served(files: Mapping[str, bytes]) -> Iterator[str]:
    """Serve files by their quoted path, to the letter."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            data = files.get(self.path)
            self.send_response(404 if data is None else 200)
            self.send_header("Content-Length", str(len(data or b"")))
            self.end_headers()
            self.wfile.write(data or b"")

        def log_message(self, *args: object) -> None:
            pass

    with listening(Handler) as url:
        yield url


@contextmanager
def listening(handler: Callable[..., BaseHTTPRequestHandler], port: int = 0) -> Iterator[str]:
    """Serve with this handler on loopback; give the server's address."""
    server = ThreadingHTTPServer(("127.0.0.1", port), handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def push_service(world: World, url: str, name: str = "push") -> ProcessingService:
    service = ProcessingService.objects.create(name=name, endpoint_url=url)
    service.projects.add(world.project)
    service.pipelines.add(world.pipeline)
    return service
