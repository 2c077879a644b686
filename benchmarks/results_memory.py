"""``python -m benchmarks.results_memory``: the memory that a process needs for a body of results, per byte of body.

The web process is gunicorn as deployed; the ingest process handles stored results like a worker's child. Each figure is
the peak resident memory above the warmed-up process, body included. The references are ``json.loads`` and pydantic on
the same body, each in its own process.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings.test")

if __name__ == "__main__":
    import django

    django.setup()

import httpx

if TYPE_CHECKING:
    from ami.jobs.models import Job, StoredResult
    from tests.support.place import Place, Process
    from tests.support.product.job_setup import World

MIB = 1024**2
REAL_TARGET, HOSTILE_TARGET = 1.5, 3.0
IMAGES, BOXES, CLASSES = 54, 5, 29_176
ZEROS = 100_000
REAL, ONE_IMAGE = "real shape", "real shape, one image"


@dataclass(frozen=True)
class Measured:
    """One body in one process; ``ratio`` is peak / body, ``kept_mib`` the memory kept afterwards."""

    body: str
    where: str
    mib: float
    outcome: str
    seconds: float
    peak_mib: float
    ratio: float
    kept_mib: float


def detection(world: World, image: int, box: int, lists: bytes) -> bytes:
    """Return a detection with one classification, as JSON; ``lists`` are further keys of the classification."""
    algorithm = {"name": world.detector.name, "key": world.detector.key}
    classifier = {"name": world.classifier.name, "key": world.classifier.key}
    when = "2026-06-01T22:00:00"
    classification = {"classification": "Noctua pronuba", "algorithm": classifier, "timestamp": when}
    found = {
        "source_image_id": str(image),
        "bbox": {"x1": 10 + box, "y1": 10, "x2": 40 + box, "y2": 50},
        "algorithm": algorithm,
        "timestamp": when,
    }
    inside = json.dumps(classification).encode()[:-1] + b"," + lists + b"}"
    return json.dumps(found).encode()[:-1] + b',"classifications":[' + inside + b"]}"


def item(world: World, images: list[int], detections: list[bytes], more: bytes = b"") -> bytes:
    """Return one posted result as JSON; ``more`` goes before its other keys."""
    head = {
        "pipeline": world.pipeline.slug,
        "total_time": 1.5,
        "source_images": [{"id": str(image), "url": "http://example.org/x.jpg"} for image in images],
    }
    result = b"{" + more + json.dumps(head).encode()[1:-1] + b',"detections":[' + b",".join(detections) + b"]}"
    return b'{"reply_subject":"r","result":' + result + b"}"


def class_lists(classes: int) -> bytes:
    """Return scores and logits of 17 digits each."""
    numbers = [(7919 * n % 104_729) / 104_729 for n in range(1, classes + 1)]
    scores, logits = json.dumps(numbers), json.dumps([20 * number - 10 for number in numbers])
    return f'"scores":{scores},"logits":{logits}'.encode()


def real_items(world: World, images: list[int], classes: int) -> list[bytes]:
    """Return a result per image, from a classifier with ``classes`` classes."""
    lists = class_lists(classes)
    return [item(world, [i], [detection(world, i, box, lists) for box in range(BOXES)]) for i in images]


def request_of(items: list[bytes], more: bytes = b"") -> bytes:
    """Return the body of a POST of results."""
    return b"{" + more + b'"results":[' + b",".join(items) + b"]}"


def repeated(unit: bytes, size: int, first: bytes = b"[", last: bytes = b"]") -> bytes:
    """Return a list of about ``size`` bytes."""
    return first + b",".join([unit] * max(size // (len(unit) + 1), 1)) + last


def hostile_items(world: World, image: int, size: int) -> dict[str, bytes]:
    """Return results of about ``size`` bytes each, one per field that may be large."""
    zeros = b'"scores":' + repeated(b"0", 2 * ZEROS)
    lists = max(size // (2 * ZEROS), 1)
    plain = [detection(world, image, 0, b'"scores":[0.9]')]

    def with_more(text: bytes) -> bytes:
        return item(world, [image], plain, text + b",")

    return {
        "algorithms": with_more(b'"algorithms":{"a":' + repeated(b'{"":0}', size) + b"}"),
        "errors": with_more(b'"errors":' + repeated(b'""', size)),
        "unknown keys": with_more(b",".join([b'"k":{"":0}'] * (size // 11))),
        "nested lists": with_more(b'"x":' + b"[" * (size // 2) + b"]" * (size // 2)),
        "one string": with_more('"x":"{}\U0001f98b"'.format("x" * size).encode()),
        "one list of scores": item(world, [image], [detection(world, image, 0, b'"scores":' + repeated(b"0", size))]),
        "many lists of scores": item(world, [image], [detection(world, image, n, zeros) for n in range(lists)]),
    }


def hostile_requests(world: World, image: int, size: int) -> dict[str, bytes]:
    """Return bodies that are large outside their results, for the web process only."""
    [result] = real_items(world, [image], 10)
    return {
        "client_info": request_of([result], b'"client_info":' + repeated(b'{"":0}', size, b'{"a":[', b"]},")),
        "bare list": repeated(b'{"":0}', size),
        "results": b'{"results":' + repeated(b'{"":0}', size) + b"}",
        "no JSON": b'"' * size,
    }


def memory_mib(pid: int | str, name: str = "VmRSS") -> float:
    """Return one figure of a process's memory: VmRSS, or VmHWM, its peak."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    (kib,) = [int(line.split()[1]) for line in lines if line.startswith(f"{name}:")]
    return kib / 1024


def forget_peak(pid: int | str) -> None:
    """Reset the peak of a process to its current memory."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")


def measured(body: str, where: str, size: int, pid: int | str, base: float, run: Callable[[], str]) -> Measured:
    """Run ``run``, which makes a process handle a body, and return the memory above ``base`` MiB."""
    forget_peak(pid)
    began = time.monotonic()
    outcome = run()
    seconds = time.monotonic() - began
    peak = memory_mib(pid, "VmHWM") - base
    kept = memory_mib(pid) - base
    return Measured(body, where, size / MIB, outcome, seconds, peak, peak / (size / MIB), kept)


@dataclass
class WebServer:
    """One gunicorn with one process, and a job to post results to."""

    process: Process
    url: str
    token: str
    base_mib: float = 0.0

    @property
    def pid(self) -> int:
        """The process below gunicorn's master."""
        from tests.support.web_server import children

        (pid,) = children(self.process.popen.pid)
        return pid

    def post(self, body: bytes, timeout: float = 300) -> httpx.Response:
        """Post a body of results."""
        headers = {"Authorization": f"Token {self.token}", "Content-Type": "application/json"}
        return httpx.post(self.url, content=body, headers=headers, timeout=timeout)

    def measure(self, name: str, body: bytes) -> Measured:
        """Post a body and measure its memory."""
        return measured(name, "web", len(body), self.pid, self.base_mib, lambda: answered(self.post(body)))


def answered(answer: httpx.Response) -> str:
    """Return the status, or that the results of the body were refused."""
    tasks = answer.json().get("tasks", []) if answer.status_code == 200 else []
    return "refused" if any(task["status"] == "refused" for task in tasks) else str(answer.status_code)


@contextmanager
def web_server(place: Place, job: Job, token: str, small: bytes) -> Iterator[WebServer]:
    """Start web as deployed, with one process, and warm it up with small results."""
    from tests.support.web_server import web_of

    server = web_of(place)
    web = WebServer(server.process, f"{server.url}/api/v2/jobs/{job.pk}/result/", token)
    for _ in range(20):
        answer = web.post(small)
        assert answer.status_code == 200, answer.text
    web.base_mib = memory_mib(web.pid)
    yield web
    server.process.stop()


def ingest(place: Place, rows: dict[str, tuple[int, StoredResult]], warm: StoredResult) -> list[Measured]:
    """Handle stored results in a new process, one after the other, and return the measurements."""
    sizes = {name: (size, row.pk) for name, (size, row) in rows.items()}
    argv = [sys.executable, "-m", "benchmarks.results_memory", "--ingest", json.dumps([warm.pk, sizes])]
    done = subprocess.run(argv, env=place.environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return [Measured(**json.loads(line)) for line in done.stdout.splitlines()]


def ingest_here(warm: int, sizes: dict[str, tuple[int, int]]) -> None:
    """Handle the stored results with these keys in this process and print a line for each."""
    from ami.jobs.models import StoredResult
    from ami.jobs.services import ingest as handling

    def handle(pk: int) -> str:
        row = StoredResult.objects.get(pk=pk)
        try:
            handling.handle(row.job_id, result_key=row.key, reply_subject="")
        except handling.ResultRefused:
            return "refused"
        return "saved"

    assert handle(warm) == "saved"
    base = memory_mib("self")
    for name, (size, pk) in sizes.items():
        print(json.dumps(asdict(measured(name, "ingest", size, "self", base, lambda pk=pk: handle(pk)))))


def reference(place: Place, name: str, body: bytes) -> list[Measured]:
    """Measure json.loads and pydantic on a whole body, each in its own process."""
    path = place.folder / "body.json"
    path.write_bytes(body)
    argv = [sys.executable, "-m", "benchmarks.results_memory", "--body", name, "--reference"]
    lines = [
        subprocess.run([*argv, kind, str(path)], env=place.environment, capture_output=True, text=True, check=True)
        for kind in ("json.loads", "pydantic")
    ]
    return [Measured(**json.loads(line.stdout)) for line in lines]


def reference_here(name: str, kind: str, path: str) -> None:
    """Parse a file with one reference in this process and print the measurement."""
    from ami.ml.schemas import ResultRequest

    parse: Callable[[bytes], Any] = json.loads if kind == "json.loads" else ResultRequest.model_validate_json
    base = memory_mib("self")

    def run() -> str:
        body = Path(path).read_bytes()
        try:
            parse(body)
        except ValueError:
            return "refused"
        return "parsed"

    print(json.dumps(asdict(measured(name, kind, Path(path).stat().st_size, "self", base, run))))


@dataclass
class Stage:
    """A project with captures and a running job, and a place whose processes share its results."""

    place: Place
    images: int

    def __post_init__(self) -> None:
        from django.core.files.storage import storages

        from tests.support.product.job_setup import new_world

        # One folder of results for this process and those of the place.
        self.place.environment["ANTENNA_TEST_FOLDER"] = str(Path(storages["results"].location).parent)
        self.world = new_world("memory")
        pictures = self.world.captures(self.images)
        self.captures = [picture.pk for picture in pictures]
        self.job = self.world.running(pictures)
        [self.small] = real_items(self.world, self.captures[:1], 10)
        self.real = real_items(self.world, self.captures, CLASSES)

    def web_rows(self, hostile_bytes: int) -> Iterator[Measured]:
        """Post bodies of real shape and hostile ones."""
        from ami.main.services import tokens

        key = tokens.issue(self.world.user)[1]
        image = self.captures[0]
        bodies = hostile_requests(self.world, image, hostile_bytes)
        hostile = hostile_items(self.world, image, hostile_bytes)
        with web_server(self.place, self.job, key, request_of([self.small])) as web:
            yield web.measure(REAL, request_of(self.real))
            for name, body in bodies.items():
                yield web.measure(name, body)
            for name, text in hostile.items():
                yield web.measure(name, request_of([text]))

    def ingest_rows(self, hostile_bytes: int) -> list[Measured]:
        """Handle one real result, one with all images, and hostile ones, stored without the web process."""
        from ami.jobs.services import stored_results

        lists = class_lists(CLASSES)
        found = [detection(self.world, pk, box, lists) for pk in self.captures for box in range(BOXES)]
        texts = {ONE_IMAGE: self.real[0], REAL: item(self.world, self.captures, found)}
        texts |= hostile_items(self.world, self.captures[0], hostile_bytes)
        stored = {name: (len(text), stored_results.store_text(self.job, "r", text)) for name, text in texts.items()}
        return ingest(self.place, stored, stored_results.store_text(self.job, "r", self.small))

    def references(self) -> list[Measured]:
        """Parse a body of real shape and a hostile one of 8 MiB with the references."""
        hostile = hostile_requests(self.world, self.captures[0], 8 * MIB)["client_info"]
        return reference(self.place, REAL, request_of(self.real)) + reference(self.place, "client_info", hostile)


def main() -> int:
    """Measure, print the table, and return 1 if a target was missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hostile-mib", type=int, default=64, help="size of the hostile bodies")
    parser.add_argument("--quick", action="store_true", help="a sixth of the captures, hostile bodies of 16 MiB")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--ingest", help=argparse.SUPPRESS)
    parser.add_argument("--body", default="", help=argparse.SUPPRESS)
    parser.add_argument("--reference", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.ingest:
        ingest_here(*json.loads(options.ingest))
        return 0
    if options.reference:
        reference_here(options.body, *options.reference)
        return 0
    images, hostile = (IMAGES // 6, 16) if options.quick else (IMAGES, options.hostile_mib)
    return benchmark(images, hostile, as_json=options.json)


def target(row: Measured) -> float | None:
    """Return the row's maximum of peak / body; None for references, and for small results, where overhead dominates."""
    if row.where not in ("web", "ingest") or row.body == ONE_IMAGE:
        return None
    return REAL_TARGET if row.body == REAL else HOSTILE_TARGET


def benchmark(images: int, hostile_mib: int, *, as_json: bool) -> int:
    """Measure in a test database and print the table."""
    from django.db import connection
    from rich.console import Console
    from rich.table import Table

    from tests.support.place import new_place

    connection.creation.create_test_db(verbosity=0)
    try:
        with new_place("results memory") as place:
            place.use_test_database()
            stage = Stage(place, images)
            size = hostile_mib * MIB
            found = [*stage.web_rows(size), *stage.ingest_rows(size), *stage.references()]
    finally:
        connection.creation.destroy_test_db(connection.settings_dict["NAME"], verbosity=0)
    if as_json:
        print(json.dumps([asdict(row) for row in found], indent=2))
    else:
        table = Table("body", "where", "MiB", "outcome", "s", "peak MiB", "peak / body", "at most", "kept MiB")
        for row in found:
            figures = (f"{row.mib:.1f}", row.outcome, f"{row.seconds:.1f}", f"{row.peak_mib:.1f}", f"{row.ratio:.2f}")
            limit = target(row)
            table.add_row(row.body, row.where, *figures, f"{limit:g}" if limit else "", f"{row.kept_mib:.1f}")
        Console(width=130).print(table)
    return int(any((limit := target(row)) and row.ratio > limit for row in found))


if __name__ == "__main__":
    sys.exit(main())
