"""Large bodies at every endpoint: peak memory and kept memory."""

import threading
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

from ami.jobs.models import Job, JobImage, StoredResult
from ami.jobs.models.states import ImageState
from tests.attack import load
from tests.attack.client import JSON, Client, Request, Role
from tests.attack.load import MIB, Connection, Large
from tests.attack.people import People, new_owner
from tests.attack.report import Report
from tests.attack.stage import Stage
from tests.support.place import until
from tests.support.product.result_messages import TASKS as RESULT_TASKS

PART = "bodies"
FORM = "application/x-www-form-urlencoded"
LOGIN = "/api/v2/auth/token/login/"
LOOK_SECONDS = 0.02
#: Maximum peak memory per byte of body; peaks below the floor are noise.
MOST_TIMES, REAL_TIMES, FLOOR_MIB = 3.0, 2.0, 24.0
#: As seen in production.
BOXES, CLASSES = 5, 29_176
SLOW, QUICK_SECONDS = 3, 10.0
SAVED_SECONDS = 300.0


class Peak:
    """The peak memory of a stage's web server and worker in a block, in MiB above the start."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self._start = self._most = self._now()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> "Peak":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(10)

    @property
    def mib(self) -> float:
        """The larger of both increases."""
        return max(most - start for most, start in zip(self._most, self._start, strict=True))

    def _now(self) -> tuple[float, float]:
        return self.stage.web_mib, self.stage.worker_mib

    def _watch(self) -> None:
        while not self._over.wait(LOOK_SECONDS):
            web, worker = self._now()
            self._most = max(self._most[0], web), max(self._most[1], worker)


class BodyAttack:
    """Sends large bodies to one stage, with valid credentials."""

    def __init__(self, stage: Stage, client: Client, people: People, report: Report, *, short: bool) -> None:
        self.stage, self.client, self.people, self.report, self.short = stage, client, people, report, short
        self.scene, self.owner = new_owner(stage, people, "bodies")
        self.job, self.project = self.scene.side.job.pk, self.scene.side.world.project.pk
        #: In the short form what takes five times its body is still above the floor.
        self.size = (5 if short else 64) * MIB

    def run(self) -> None:
        """Send everything."""
        self.logins()
        self.results()
        self.real_shape()
        self.registrations()
        self.ordinary()
        self.bombs()
        self.slow()
        self.kept_connections()

    def logins(self) -> None:
        """Send the same 15 MiB repeatedly, as JSON, as a form, and in chunks without a length."""
        body = load.of_login(15 * MIB)
        anonymous = Role("anonymous")
        with Peak(self.stage) as peak:
            for index in range(4 if self.short else 50):
                kinds = (JSON, FORM, JSON, "multipart/form-data; boundary=x")
                self.post(LOGIN, body.pieces(), anonymous, body.name, body.length, kinds[index % 4], index % 4 == 2)
        self.judge(peak, "logins of 15 MiB", 15.0 * 4, MOST_TIMES)

    def results(self) -> None:
        """Send each hostile body of results, then three of them concurrently."""
        path = f"/api/v2/jobs/{self.job}/result/"
        bodies = load.of_results(self.size, self.scene.side.world.pipeline.slug, self.scene.side.capture.pk)
        for body in bodies:
            self.one(path, body)
        with Peak(self.stage) as peak, ThreadPoolExecutor(3) as pool:
            futures = [
                pool.submit(self.post, path, body.pieces(), self.owner, body.name, body.length) for body in bodies[:3]
            ]
            for future in futures:
                future.result()
        self.judge(peak, "three bodies of results at once", 3 * self.size / MIB, MOST_TIMES)

    def real_shape(self) -> None:
        """Send bodies of the shape seen in production: 24 images, 5 boxes each, 29,176 classes; or an eighth of it. In
        the first, every other image fails, since its algorithms are unknown; in the second all are saved.
        """
        world = self.scene.side.world
        own = (world.detector.key, world.classifier.key)
        for name, algorithms in (("half saved", [own, ("d", "c")]), ("all saved", [own])):
            job = world.running(world.captures(3 if self.short else 24))
            images = list(JobImage.objects.filter(job=job).values_list("source_image_id", flat=True))
            shape = (world.pipeline.slug, images, algorithms, BOXES, CLASSES)
            length = sum(map(len, load.real_results(*shape)))
            with Peak(self.stage) as peak:
                path = f"/api/v2/jobs/{job.pk}/result/"
                status = self.post(path, load.real_results(*shape), self.owner, "real shape", length)
                if status != 200:
                    self.report.found(PART, "errors", f"a body of real shape is answered {status}", "real_results")
                self.await_saved(job, len(images) // len(algorithms))
            self.judge(peak, f"real shape of {length / MIB:.0f} MiB, {name}", length / MIB, REAL_TIMES)

    def await_saved(self, job: Job, at_least: int) -> None:
        """Wait until every result of a job is saved or buried."""
        waiting = StoredResult.objects.filter(job=job, handled_at=None, error="")
        until(lambda: not waiting.exists(), SAVED_SECONDS, "the results are saved")
        if (saved := JobImage.objects.filter(job=job, state=ImageState.PROCESSED).count()) < at_least:
            self.report.found(PART, "errors", f"{saved} of {at_least} images of real shape are saved", "real_results")
        ran = [record for task in RESULT_TASKS for record in self.stage.place.ran(task)]
        peak = max(record["peak_memory_kib"] for record in ran) / 1024
        what = f"{saved} images of real shape are saved, the ingest process had {peak:.0f} MiB at most"
        self.report.note(f"{what}; {self.stage.memory}")

    def registrations(self) -> None:
        """Send hostile registrations."""
        for body in load.of_registration(self.size):
            self.one(f"/api/v2/projects/{self.project}/pipelines/", body)

    def ordinary(self) -> None:
        """Send a large list to endpoints for small writes."""
        size = min(15 * MIB, self.size)
        for path in ("/api/v2/jobs/", "/api/v2/projects/", "/api/v2/exports/", f"/api/v2/jobs/{self.job}/tasks/"):
            self.one(path, load.of_login(size))
            self.one(path, Large("list in a field", b'{"name": "x", "params": [', b'{"":0}', b"]}", size))
        for path in ("/admin/login/", "/admin/main/project/add/"):
            form = Large("form of many fields", b"a=1", b"&a=1", b"", 2 * MIB)
            self.post(path, form.pieces(), self.people.admin["staff"], form.name, form.length, FORM)

    def bombs(self) -> None:
        """Send compressed bodies with Content-Encoding; the server must not decompress them."""
        packed = load.bomb(32 if self.short else 256)
        for path in (LOGIN, f"/api/v2/jobs/{self.job}/result/", "/api/v2/jobs/"):
            with Peak(self.stage) as peak:
                request = Request("POST", path, packed, JSON, (("Content-Encoding", "gzip"),))
                self.client.send(PART, self.owner, request)
            self.judge(peak, f"compressed body at {path}", len(packed) / MIB, MOST_TIMES)

    def slow(self) -> None:
        """Send bodies that never end; other requests must still be answered quickly."""
        held = [Connection(self.stage.web.url) for _ in range(SLOW)]
        try:
            for connection in held:
                headers = {"Content-Type": JSON, "Content-Length": "1000000", **self.owner.headers}
                connection.head("POST", f"/api/v2/jobs/{self.job}/result/", headers)
                connection.send([b'{"results": ['])
            began = time.monotonic()
            self.client.send(PART, self.owner, Request("GET", "/api/v2/jobs/"))
            # A busy machine is slow, too: report only if the response came after a slow body was given up.
            waited = any(connection.has_answer for connection in held)
            if (seconds := time.monotonic() - began) > QUICK_SECONDS and waited:
                what = f"{SLOW} slow bodies keep a small request waiting"
                self.report.found(PART, "excess", what, f"{seconds:.0f} s")
        finally:
            for connection in held:
                connection.__exit__()

    def kept_connections(self) -> None:
        """After a refusal the connection accepts the next request, or announces its end."""
        large = load.of_login(20 * MIB)
        for path in (LOGIN, "/api/v2/jobs/", f"/api/v2/jobs/{self.job}/tasks/"):
            self.report.count(PART)
            with Connection(self.stage.web.url) as connection:
                headers = {"Content-Type": JSON, "Content-Length": str(large.length), **self.owner.headers}
                connection.head("POST", path, headers)
                whole = connection.send(large.pieces())
                status, headers, _ = connection.answer()
                if not whole or headers.get("connection", "").lower() == "close":
                    continue
                connection.head("GET", "/livez", {})
                after, _, text = connection.answer()
                if after != 200:
                    what = f"after {status} the kept connection answers {after or 'nothing'}"
                    self.report.found(PART, "errors", what, f"POST {path} with {large.length} bytes; {text!r}")

    def one(self, path: str, body: Large) -> None:
        """Send one body and check its peak."""
        with Peak(self.stage) as peak:
            self.post(path, body.pieces(), self.owner, body.name, body.length)
        self.judge(peak, f"{body.name} at {path}", body.length / MIB, MOST_TIMES)

    def post(
        self,
        path: str,
        pieces: Iterable[bytes],
        role: Role,
        name: str,
        length: int,
        kind: str = JSON,
        chunked: bool = False,
    ) -> int:
        """Send a body in pieces from a new address; return the status, 0 if the server closed the connection."""
        self.report.count(PART)
        size: dict[str, str] = {"Transfer-Encoding": "chunked"} if chunked else {"Content-Length": str(length)}
        headers = {"Content-Type": kind, **size, "X-Forwarded-For": self.client.address(), **role.headers}
        with Connection(self.stage.web.url) as connection:
            connection.head("POST", path, headers)
            connection.send(pieces, chunked=chunked)
            status, headers, _ = connection.answer()
        if status >= 500 and not (status == 503 and "retry-after" in headers):
            repeat = f"POST {path}, {length} bytes of {name}, as {role.name}"
            self.report.found(PART, "errors", f"{status} of POST {path} with {name}", repeat)
        return status

    def judge(self, peak: Peak, what: str, body_mib: float, most: float) -> None:
        """Report a peak above ``most`` times the body."""
        if peak.mib > max(FLOOR_MIB, most * body_mib):
            text = f"{what} takes more than {most:g} times its body"
            self.report.found(PART, "excess", text, f"{peak.mib:.0f} MiB for {body_mib:.0f} MiB")


def attack(stage: Stage, client: Client, people: People, report: Report, *, short: bool) -> None:
    """Send all large bodies."""
    BodyAttack(stage, client, people, report, short=short).run()
