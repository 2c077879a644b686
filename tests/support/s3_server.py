"""A real S3 server on loopback for tests: moto's, in a process of its own, which answers one request after another.

With a thread for each request, as moto runs by itself, it compares a condition and writes without a lock between the
two: now and then two racing conditional puts both win. One at a time, as here, no two of its writes can interleave.
"""

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import httpx

START_SECONDS = 60.0


class S3Server(NamedTuple):
    """Where the server answers, and what to give `CloudObjects.s3` besides a bucket and a prefix."""

    endpoint: str
    credentials: dict[str, str]

    def make_bucket(self, name: str) -> str:
        """Make a bucket, 3 to 63 characters long, and return its name."""
        httpx.put(f"{self.endpoint}/{name}", verify=False).raise_for_status()
        return name


@contextmanager
def running() -> Iterator[S3Server]:
    """Start a server without any bucket and wait until it answers; end it with its objects."""
    process = subprocess.Popen(
        [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        # It prints its port once it listens, so the first request waits for the answer, not for the port.
        port = process.stdout.readline().strip()
        assert port, f"the S3 server ended with {process.wait(START_SECONDS)}"
        endpoint = f"http://127.0.0.1:{port}"
        httpx.get(endpoint, timeout=START_SECONDS, verify=False).raise_for_status()
        yield S3Server(
            endpoint,
            {"region": "us-east-1", "access_key_id": "testing-id", "secret_access_key": "testing-secret-access-key"},
        )
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdin.close()
        process.stdout.close()


def serve() -> None:
    """Serve on a free port, print it, and end when whoever started this is gone."""
    from moto.server import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import WSGIRequestHandler, make_server

    class Handler(WSGIRequestHandler):
        # One that connects and says nothing would keep all others waiting.
        timeout = 10

    server = make_server(
        "127.0.0.1", 0, DomainDispatcherApplication(create_backend_app), threaded=False, request_handler=Handler
    )
    print(server.server_port, flush=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdin.read()


if __name__ == "__main__":
    serve()
