"""A minimal push service that records requests and their deviations from the recorded shape."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.support.product.client_bodies import pipeline_config, results

SLUG = "contract-push"


class PushService:
    """``GET /info``, ``/livez``, ``/readyz`` and ``POST /process`` on a loopback port."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.requests: list[dict[str, Any]] = []
        self.wrong: list[str] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> "PushService":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join(10)
        self._server.server_close()

    def process(self, body: bytes, content_type: str) -> dict[str, Any]:
        """Record the request and its deviations, and return one detection on each image."""
        request = json.loads(body)
        self.requests.append(request)
        self.wrong += wrong_in(request)
        if content_type.split(";")[0] != "application/json":
            self.wrong.append(f"content type {content_type}")
        return results(SLUG, [image["id"] for image in request["source_images"]])


def wrong_in(request: Any) -> list[str]:
    """Return the deviations of a body from a recorded PipelineRequest."""
    wrong = []
    if set(request) - {"detections"} != {"pipeline", "source_images", "config"}:
        wrong.append(f"keys {sorted(request)}")
    if not isinstance(request.get("pipeline"), str):
        wrong.append("pipeline is not text")
    if not isinstance(request.get("config"), dict):
        wrong.append("config is not an object")
    for image in request.get("source_images") or ["there are none"]:
        if not isinstance(image, dict) or set(image) != {"id", "url"}:
            wrong.append(f"source image {image}")
        elif not all(isinstance(value, str) for value in image.values()):
            wrong.append(f"source image with something else than text: {image}")
    return wrong


def _handler(service: PushService) -> type[BaseHTTPRequestHandler]:
    fixed = {
        "/livez": {"status": True},
        "/readyz": {"status": [SLUG]},
        "/info": {
            "name": "Contract push service",
            "description": "",
            "pipelines": [pipeline_config(SLUG)],
            "algorithms": pipeline_config(SLUG)["algorithms"],
        },
    }

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            service.asked.append(self.path)
            self._answer(fixed.get(self.path))

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            known = self.path == "/process"
            self._answer(service.process(body, self.headers.get("Content-Type", "")) if known else None)

        def _answer(self, body: Any) -> None:
            content = json.dumps(body).encode()
            self.send_response(404 if body is None else 200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *arguments: object) -> None:
            """Stay quiet."""

    return Handler
