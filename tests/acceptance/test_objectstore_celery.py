"""Celery's own features on a folder: no message of its protocol is special to the transport."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
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

    def __init__(self, folder: Path, app: Any) -> None:
        self.folder, self.app = folder, app
        self.running: list[subprocess.Popen[bytes]] = []

    def worker(self, pool: str = "prefork", name: str = "one", *extra: str) -> subprocess.Popen[bytes]:
        argv = [sys.executable, "-m", "celery", "-A", "tests.support.plain_app", "worker", "-l", "info", "-c", "2"]
        log = self.folder / f"{name}-{len(self.running)}.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                [*argv, "-P", pool, "-n", f"{name}@here", *extra],
                cwd=ROOT,
                env={key: value for key, value in os.environ.items() if key != "DJANGO_SETTINGS_MODULE"},
                stdout=output,
                stderr=output,
            )
        self.running.append(process)
        until(lambda: " ready." in log.read_text() or process.poll() is not None, 60, f"{name} is ready")
        assert process.poll() is None, log.read_text()
        return process

    def diary(self, word: str) -> list[list[str]]:
        path = self.folder / "diary"
        lines = path.read_text().splitlines() if path.exists() else []
        return [line.split() for line in lines if line.startswith(word)]

    def depth(self) -> int:
        with self.app.connection_for_read() as connection:
            return connection.default_channel.queue_declare("celery", passive=True).message_count


@pytest.fixture
def site(tmp_path, monkeypatch) -> Iterator[Site]:
    register()
    broker = f"objectstore+file://{tmp_path / 'broker'}"
    monkeypatch.setenv("PLAIN_BROKER", broker)
    monkeypatch.setenv("PLAIN_FOLDER", str(tmp_path))
    monkeypatch.delenv("CELERY_BROKER_URL", raising=False)
    app = Celery("asking", broker=broker, backend=f"file://{tmp_path}", set_as_current=False)
    site = Site(tmp_path, app)
    yield site
    for process in site.running:
        process.terminate()
    for process in site.running:
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    app.close()


def task(site: Site, name: str) -> Any:
    """Return a signature by name: only the workers have the tasks themselves."""
    return site.app.signature(f"tests.support.plain_app.{name}")


@pytest.mark.parametrize("pool", soak(["prefork"], ["prefork", "threads", "solo"]))
def test_canvas_retries_countdowns_and_remote_control_work(site, pool):
    site.worker(pool)

    def add(*args: int) -> Any:
        return task(site, "add").clone(args)

    assert chain(add(1, 2), add(3), app=site.app)().get(timeout=20) == 6
    assert group([add(n, n) for n in range(5)], app=site.app)().get(timeout=20) == [0, 2, 4, 6, 8]
    assert chord([add(n, 1) for n in range(4)], task(site, "total"), app=site.app)().get(timeout=30) == 10
    assert task(site, "third_time").delay().get(timeout=30) == 2
    due = datetime.now(UTC) + timedelta(seconds=2)
    assert add(1, 1).apply_async(eta=due).get(timeout=20) == 2
    assert datetime.now(UTC) >= due
    inspect = site.app.control.inspect(timeout=3)
    assert inspect.ping() == {"one@here": {"ok": "pong"}}
    assert inspect.stats()["one@here"]["broker"]["transport"] == "objectstore"
    assert site.depth() == 0


def test_a_waiting_task_can_be_revoked_and_a_running_one_ended(site):
    site.worker()
    never = site.folder / "never"
    waiting = task(site, "add").apply_async((1, 1), countdown=3)
    running = task(site, "wait_for").delay(str(never))
    until(lambda: site.diary(f"started {running.id}"), 20)
    site.app.control.revoke(waiting.id)
    site.app.control.revoke(running.id, terminate=True)
    until(lambda: running.state == "REVOKED" and waiting.state == "REVOKED", 20)
    assert site.depth() == 0


def test_a_rate_limit_holds(site):
    site.worker()
    for number in range(5):
        task(site, "slowly").clone((number,)).apply_async()
    until(lambda: len(site.diary("slowly")) == 5, 30)
    moments = [float(moment) for _, _, moment in site.diary("slowly")]
    assert moments[-1] - moments[0] > 1.5


def test_a_warm_shutdown_ends_what_runs_and_returns_what_it_held(site):
    worker = site.worker("prefork", "one", "--prefetch-multiplier=4")
    gate = site.folder / "gate"
    results = [task(site, "wait_for").delay(str(gate)) for _ in range(6)]
    until(lambda: len(site.diary("started")) == 2 and site.depth() == 0, 20, "two run, four are prefetched")
    worker.terminate()
    until(lambda: "Warm shutdown" in (site.folder / "one-0.log").read_text(), 20)
    gate.touch()
    assert worker.wait(30) == 0
    until(lambda: site.depth() == 4, 20, "four are back")
    site.worker("prefork", "two")
    assert all(result.get(timeout=30) for result in results)
    assert sorted(flag for _, _, flag in site.diary("started")) == ["False", "False", *["True"] * 4]


def test_a_solo_worker_keeps_its_message_however_long_its_task_runs(site):
    """The lease is two seconds, the task runs for six, and nobody else gets it."""
    site.worker("solo", "one")
    site.worker("solo", "two")
    result = task(site, "wait_for").delay(str(site.folder / "never"), 6)
    assert result.get(timeout=30) is False
    assert len(site.diary("started")) == 1


def test_what_a_killed_worker_ran_is_run_again_and_flagged(site):
    worker = site.worker("solo", "one")
    gate = site.folder / "gate"
    result = task(site, "wait_for").delay(str(gate))
    until(lambda: site.diary("started"), 20)
    worker.kill()
    worker.wait()
    gate.touch()
    site.worker("solo", "two")
    assert result.get(timeout=30) is True
    assert [flag for _, _, flag in site.diary("started")] == ["False", "True"]


def test_an_idle_worker_uses_next_to_nothing(site):
    worker = site.worker()

    def spent() -> int:
        return sum(map(int, Path(f"/proc/{worker.pid}/stat").read_text().rpartition(")")[2].split()[11:13]))

    before, began = spent(), time.monotonic()
    until(lambda: time.monotonic() - began > 8, 20)
    share = (spent() - before) / os.sysconf("SC_CLK_TCK") / (time.monotonic() - began)
    assert share < 0.01, f"an idle worker uses {share:.1%} of a core"
