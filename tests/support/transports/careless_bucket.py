"""An S3 server in this process that keeps, or ignores, the conditions of a write."""

import hashlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

MATCH, NONE_MATCH = "if-match", "if-none-match"


class CarelessBucket:
    """``ignores`` names the conditions that have no effect; ``refuses`` is (status, code) of every write's answer."""

    def __init__(self, ignores=(), refuses=None, forgets=False):
        self.ignores = ignores
        self.refuses = refuses
        #: Whether writes are confirmed and not made.
        self.forgets = forgets
        self.objects = {}
        self.writes = []
        self.endpoint = ""
        self._lock = threading.Lock()

    def put(self, path, headers, body):
        """Return (status, code of the error, ETag)."""
        with self._lock:
            self.writes.append(path)
            found = self.objects.get(path)
            if self.refuses:
                return *self.refuses, ""
            etag = found and f'"{hashlib.md5(found).hexdigest()}"'
            if NONE_MATCH in headers and NONE_MATCH not in self.ignores and found is not None:
                return 412, "PreconditionFailed", ""
            if MATCH in headers and MATCH not in self.ignores and headers[MATCH] != etag:
                return (404, "NoSuchKey", "") if found is None else (412, "PreconditionFailed", "")
            if not self.forgets:
                self.objects[path] = body
            return 200, "", f'"{hashlib.md5(body).hexdigest()}"'


@contextmanager
def served(**faults) -> Iterator[CarelessBucket]:
    """Serve a bucket on a free port of the loopback interface."""
    bucket = CarelessBucket(**faults)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1

        def do_PUT(self):
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            headers = {name.lower(): value for name, value in self.headers.items()}
            self.answer(*bucket.put(urlsplit(self.path).path, headers, body))

        def do_GET(self):
            url = urlsplit(self.path)
            if "list-type" in url.query:
                return self.answer(200, body=b"<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>")
            found = bucket.objects.get(url.path)
            if found is None:
                return self.answer(404, "NoSuchKey")
            return self.answer(200, etag=f'"{hashlib.md5(found).hexdigest()}"', body=found)

        def answer(self, status, code="", etag="", body=b""):
            body = f"<Error><Code>{code}</Code></Error>".encode() if code else body
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Last-Modified", "Wed, 21 Oct 2015 07:28:00 GMT")
            if etag:
                self.send_header("ETag", etag)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    bucket.endpoint = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield bucket
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def environment(bucket):
    """Return the variables that make a process use the bucket's server."""
    return {
        "AWS_ENDPOINT_URL": bucket.endpoint,
        "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "testing-id",
        "AWS_SECRET_ACCESS_KEY": "testing-secret-access-key",
    }
