"""Large bodies: generated in pieces, never copied as a whole."""

import gzip
import json
import select
import socket
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

MIB = 1024**2
PIECE = 256 * 1024
SECONDS = 300.0


@dataclass(frozen=True)
class Large:
    """A body of about ``size`` bytes: ``head``, repeated ``unit`` separated by commas, ``tail``."""

    name: str
    head: bytes
    unit: bytes
    tail: bytes
    size: int

    @property
    def repeats(self) -> int:
        """The number of units."""
        return max(1, (self.size - len(self.head) - len(self.tail) + 1) // (len(self.unit) + 1))

    @property
    def length(self) -> int:
        """Its exact size in bytes."""
        return len(self.head) + len(self.tail) + self.repeats * (len(self.unit) + 1) - 1

    def pieces(self) -> Iterator[bytes]:
        """Yield the body in pieces."""
        yield self.head
        per_piece = max(1, PIECE // (len(self.unit) + 1))
        piece, left = (self.unit + b",") * per_piece, self.repeats
        while left > per_piece:
            yield piece
            left -= per_piece
        yield (self.unit + b",") * (left - 1) + self.unit
        yield self.tail


def of_login(size: int) -> Large:
    """The body that kept 450 MiB for each request."""
    return Large("list of small objects", b"[", b'{"":0}', b"]", size)


def of_results(size: int, pipeline: str, image: int) -> list[Large]:
    """Return hostile bodies of results: unexpected structure, and very many numbers."""
    head = f'{{"pipeline": "{pipeline}", "total_time": 1, "source_images": [{{"id": "{image}", "url": "http://x/"}}]'
    item = b'{"results": [{"reply_subject": "r", "result": ' + head.encode()
    algorithm = '"algorithm": {"name": "x", "key": "x"}, "timestamp": "2026-01-01T22:00:00"'
    detection = f', "detections": [{{"source_image_id": "{image}", {algorithm}, "classifications": ['.encode()
    scores = f'{{"classification": "x", {algorithm}, "scores": ['.encode()
    return [
        Large("client_info", b'{"results": [], "client_info": {"a": [', b'{"":0}', b"]}}", size),
        Large("algorithms", item + b', "detections": [], "algorithms": {"a": [', b'{"":0}', b"]}}}]}", size),
        Large("unknown keys of an item", item + b', "detections": [], "unknown": [', b'{"":0}', b"]}}]}", size),
        Large("unknown keys of the whole", b'{"results": [], "unknown": [', b'{"":0}', b"]}", size),
        Large("errors", item + b', "detections": [], "errors": [', b"[0]", b"]}}]}", size),
        Large("results of nothing", b'{"results": [', b"{}", b"]}", size),
        Large("detections of nothing", item + b', "detections": [', b"{}", b"]}}]}", size),
        Large("source images", item[:-1] + b", ", b'{"id":"1","url":""}', b'], "detections": []}}]}', size),
        Large("nested lists", b'{"results": [], "client_info": {"a": ' + b"[" * 5000, b"0", b"]" * 5000 + b"}}", size),
        Large("scores of zeros", item + detection + scores, b"0", b"]}]}]}}]}", size),
        Large("a long text", item + b', "detections": [], "errors": "', b"x" * 1000, b'"}}]}', size),
    ]


def of_registration(size: int) -> list[Large]:
    """Return hostile bodies of a registration."""
    head = b'{"processing_service_name": "large", "pipelines": [{"name": "L", "slug": "large", "version": 1'
    algorithm = head + b', "algorithms": [{"name": "L", "key": "large", "task_type": "classification"'
    return [
        Large("stages", head + b', "stages": [', b'{"key":"","name":""}', b"]}]}", size),
        Large("unknown keys", head + b', "unknown": [', b'{"":0}', b"]}]}", size),
        Large("map entries", algorithm + b', "category_map": {"labels": [], "data": [', b'{"":0}', b"]}}]}]}", size),
        Large("map labels", algorithm + b', "category_map": {"data": [], "labels": [', b'""', b"]}}]}]}", size),
    ]


def real_results(
    pipeline: str, images: list[int], algorithms: Sequence[tuple[str, str]], boxes: int, classes: int
) -> Iterator[bytes]:
    """Yield a body of the shape seen in production, image by image.

    ``algorithms`` are pairs of the keys of a detector and a classifier; the images alternate between them.
    """
    numbers = ("3.4276538491234e-05," * classes)[:-1].encode()
    for index, image in enumerate(images):
        item = _item(pipeline, image, algorithms[index % len(algorithms)], boxes, numbers)
        yield (b"," if index else b'{"results": [') + item
    yield b'], "client_info": {"hostname": "bench"}}'


def _item(pipeline: str, image: int, algorithms: tuple[str, str], boxes: int, numbers: bytes) -> bytes:
    detector, classifier = (json.dumps({"name": key, "key": key}) for key in algorithms)
    moment = '"timestamp": "2026-01-01T22:00:00"'
    head = (
        f'{{"reply_subject": "real-{image}", "result": {{"pipeline": "{pipeline}", "total_time": 1.5, "source_images":'
    )
    head += f' [{{"id": "{image}", "url": "http://x/1.jpg"}}], "detections": ['
    parts = []
    for box in range(boxes):
        corner = json.dumps({"x1": box, "y1": 1, "x2": box + 50, "y2": 90})
        start = f'{{"source_image_id": "{image}", "bbox": {corner}, {moment}, "algorithm": {detector},'
        start += f' "classifications": [{{"classification": "x", "algorithm": {classifier}, {moment}'
        parts.append(start.encode() + b', "scores": [' + numbers + b'], "logits": [' + numbers + b"]}]}")
    return head.encode() + b",".join(parts) + b"]}}"


def bomb(mib: int) -> bytes:
    """Return ``mib`` MiB of zeros, compressed."""
    return gzip.compress(b"[" + b"0," * (mib * MIB // 2) + b"0]")


class Connection:
    """A persistent plain HTTP/1.1 connection, for requests that no library would send."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self.socket = socket.create_connection((parts.hostname or "", parts.port or 80), timeout=SECONDS)
        self._file = self.socket.makefile("rb")

    def __enter__(self) -> "Connection":
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
        self.socket.close()

    def head(self, method: str, path: str, headers: dict[str, str]) -> None:
        """Send the first line and the headers."""
        lines = [f"{method} {path} HTTP/1.1", "Host: 127.0.0.1", *(f"{name}: {text}" for name, text in headers.items())]
        self.socket.sendall("\r\n".join([*lines, "", ""]).encode())

    def send(self, pieces: Any, *, chunked: bool = False) -> bool:
        """Send a body; return False if the server closed the connection before its end."""
        try:
            for piece in pieces:
                if piece:
                    self.socket.sendall(b"%x\r\n%b\r\n" % (len(piece), piece) if chunked else piece)
            if chunked:
                self.socket.sendall(b"0\r\n\r\n")
        except (BrokenPipeError, ConnectionResetError):
            return False
        return True

    @property
    def has_answer(self) -> bool:
        """Whether there is data, or the server closed the connection."""
        return bool(select.select([self.socket], [], [], 0)[0])

    def answer(self) -> tuple[int, dict[str, str], bytes]:
        """Read one response: status, headers in lower case, body. Status 0 if the connection was closed."""
        try:
            words = self._file.readline().split()
            if len(words) < 2 or not words[1].isdigit():
                return 0, {}, b" ".join(words)[:80]
            headers = {}
            while (line := self._file.readline().strip()) and b":" in line:
                name, _, text = line.decode("latin-1").partition(":")
                headers[name.lower()] = text.strip()
            return int(words[1]), headers, self._file.read(int(headers.get("content-length", "0")))
        except (ConnectionResetError, TimeoutError):
            return 0, {}, b""
