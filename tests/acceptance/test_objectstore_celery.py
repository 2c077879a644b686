"""Celery's own features on a folder: no message of its protocol is special to the transport."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from celery import Celery, chain, chord, group

from ami.transports import register
from tests.support.place import ROOT, until
from tests.support.soak import soak


class Site:
    """A folder broker, its workers, and this process's application at it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.broker = folder, f"objectstore+file://{folder / 'broker'}"
        self.app: Any = Celery("asking", broker=self.broker, backend=f"file://{folder}", set_as_current=False)
        self.running: list[subprocess.Popen[bytes]] = []

    def start(self, pool: str, name: str, *extra: str) -> subprocess.Popen[bytes]:
        """Start a worker; see ``ready``."""
        argv = [sys.executable, "-m", "celery", "-A", "tests.support.plain_app", "worker", "-l", "info", "-c", "2"]
        environment = {key: value for key, value in os.environ.items() if key != "DJANGO_SETTINGS_MODULE"}
        with self.log(len(self.running)).open("wb") as output:
            process = subprocess.Popen(
                [*argv, "-P", pool, "-n", f"{name}@here", *extra],
                cwd=ROOT,
                env=environment | {"PLAIN_BROKER": self.broker, "PLAIN_FOLDER": str(self.folder)},
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        self.running.append(process)
        return process

    def log(self, number: int) -> Path:
        return self.folder / f"{number}.log"

    def ready(self) -> None:
        """Wait until every worker is ready that runs."""
        for number, process in enumerate(self.running):
            log = self.log(number)
            until(lambda log=log, process=process: " ready." in log.read_text() or process.poll() is not None, 120)
            assert " ready." in log.read_text(), log.read_text()

    def worker(self, pool: str = "prefork", name: str = "one", *extra: str) -> subprocess.Popen[bytes]:
        process = self.start(pool, name, *extra)
        self.ready()
        return process

    def diary(self, word: str) -> list[list[str]]:
        path = self.folder / "diary"
        lines = path.read_text().splitlines() if path.exists() else []
        return [line.split() for line in lines if line.startswith(word)]

    def depth(self) -> int:
        with self.app.connection_for_read() as connection:
            return connection.default_channel.queue_declare("celery", passive=True).message_count

    def close(self) -> None:
        for process in self.running:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        self.app.close()


@contextmanager
def new_site(folder: Path) -> Iterator[Site]:
    """Make a site, and end its workers with it."""
    register()
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("CELERY_BROKER_URL", raising=False)  # Celery would prefer it.
        site = Site(folder)
        try:
            yield site
        finally:
            site.close()


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with new_site(tmp_path) as made:
        yield made


@pytest.fixture(scope="module")
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A site with one worker, which every test leaves idle; the parameter is its pool."""
    with new_site(tmp_path_factory.mktemp("served")) as made:
        made.worker(request.param)
        yield made


@pytest.fixture(scope="module")
def two_solos(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with new_site(tmp_path_factory.mktemp("solos")) as made:
        yield made


@pytest.fixture
def pair(two_solos: Site) -> Site:
    """A site with two idle solo workers; the one that a test has killed is replaced."""
    alive = sum(process.poll() is None for process in two_solos.running)
    for _ in range(2 - alive):
        two_solos.start("solo", f"solo-{len(two_solos.running)}")
    two_solos.ready()
    return two_solos


prefork = pytest.mark.parametrize("served", ["prefork"], indirect=True)


def task(site: Site, name: str) -> Any:
    """Return a signature by name: only the workers have the tasks themselves."""
    return site.app.signature(f"tests.support.plain_app.{name}")


@pytest.mark.parametrize("served", soak(["prefork"], ["prefork", "threads", "solo"]), indirect=True)
def test_canvas_retries_countdowns_and_remote_control_work(served):
    site = served

    def add(*args: int) -> Any:
        return task(site, "add").clone(args)

    assert chain(add(1, 2), add(3), app=site.app)().get(timeout=60) == 6
    assert group([add(n, n) for n in range(5)], app=site.app)().get(timeout=60) == [0, 2, 4, 6, 8]
    assert chord([add(n, 1) for n in range(4)], task(site, "total"), app=site.app)().get(timeout=60) == 10
    assert task(site, "third_time").delay().get(timeout=60) == 2
    due = datetime.now(UTC) + timedelta(seconds=2)
    assert add(1, 1).apply_async(eta=due).get(timeout=60) == 2
    assert datetime.now(UTC) >= due
    inspect = site.app.control.inspect(timeout=60, limit=1)
    assert inspect.ping() == {"one@here": {"ok": "pong"}}
    assert inspect.stats()["one@here"]["broker"]["transport"] == "objectstore"
    assert site.depth() == 0


@prefork
def test_worker_declares_its_queue_again_after_it_was_deleted(served):
    with served.app.connection_for_write() as connection:
        connection.default_channel.queue_delete("celery")
        declared = connection.transport.broker.declarations
        until(lambda: "celery" in declared.current().queues, what="the worker's declaration")
    assert task(served, "add").delay(1, 2).get(timeout=60) == 3


@prefork
def test_a_waiting_task_can_be_revoked_and_a_running_one_ended(served):
    site = served
    never = site.folder / "never"
    waiting = task(site, "add").apply_async((1, 1), countdown=3)
    running = task(site, "wait_for").delay(str(never))
    until(lambda: site.diary(f"started {running.id}"))
    site.app.control.revoke(waiting.id)
    site.app.control.revoke(running.id, terminate=True)
    until(lambda: running.state == "REVOKED" and waiting.state == "REVOKED")
    assert site.depth() == 0


@prefork
def test_a_rate_limit_holds(served):
    site = served
    for number in range(5):
        task(site, "slowly").clone((number,)).apply_async()
    until(lambda: len(site.diary("slowly")) == 5)
    moments = [float(moment) for _, _, moment in site.diary("slowly")]
    assert moments[-1] - moments[0] > 1.5


def test_a_warm_shutdown_ends_what_runs_and_returns_what_it_held(site):
    worker = site.worker("prefork", "one", "--prefetch-multiplier=4")
    gate = site.folder / "gate"
    results = [task(site, "wait_for").delay(str(gate)) for _ in range(6)]
    until(lambda: len(site.diary("started")) == 2 and site.depth() == 0, what="two run, four are prefetched")
    worker.terminate()
    until(lambda: "Warm shutdown" in site.log(0).read_text())
    gate.touch()
    assert worker.wait(60) == 0
    until(lambda: site.depth() == 4, what="four are back")
    site.worker("prefork", "two")
    assert all(result.get(timeout=60) for result in results)
    assert sorted(flag for _, _, flag, _ in site.diary("started")) == ["False", "False", *["True"] * 4]


def test_a_solo_worker_keeps_its_message_however_long_its_task_runs(pair):
    """The lease is two seconds, the task runs for six, and the other worker does not get it."""
    result = task(pair, "wait_for").delay(str(pair.folder / "never"), 6)
    assert result.get(timeout=60) is False
    assert len(pair.diary(f"started {result.id}")) == 1


def test_what_a_killed_worker_ran_is_run_again_and_flagged(pair):
    gate = pair.folder / "gate"
    result = task(pair, "wait_for").delay(str(gate))
    until(lambda: pair.diary(f"started {result.id}"))
    ((*_, runs_it),) = pair.diary(f"started {result.id}")
    (worker,) = (process for process in pair.running if process.pid == int(runs_it))
    worker.kill()
    worker.wait()
    gate.touch()
    assert result.get(timeout=60) is True
    assert [flag for _, _, flag, _ in pair.diary(f"started {result.id}")] == ["False", "True"]


@prefork
def test_an_idle_worker_seldom_wakes(served):
    """Its threads' waits are counted, not its processor time: what a wake-up costs is the machine's."""
    (worker,) = served.running

    def waits() -> int:
        found = 0
        for path in Path(f"/proc/{worker.pid}/task").glob("*/status"):
            with suppress(FileNotFoundError, ProcessLookupError):
                found += int(path.read_text().partition("\nvoluntary_ctxt_switches:")[2].split()[0])
        return found

    before, began = waits(), time.monotonic()
    until(lambda: time.monotonic() - began > soak(4, 8))
    rate = (waits() - before) / (time.monotonic() - began)
    assert rate < 12, f"an idle worker wakes {rate:.0f} times a second"
