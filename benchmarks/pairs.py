"""One worker beside that of an earlier commit, in turn: no-op tasks per second, processor time, the parent's memory.

Each run fills the queue, starts the worker of one queue with two children as deployed, and looks at it from the first
5% of the tasks to the last. Two runs after each other, one of each commit, are a pair; each pair changes which is
first. What is compared is the median of the pairs' ratios; beside it stand the lowest and the highest. Memory is the
parent's resident size: what it gains per 1,000 tasks over the second half of a run, in KiB. Its proportional share
also grows when a child copies a page that it shared with its parent, and is printed alone.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings.test")

import django

django.setup()

from ami.celery.declaration import depth  # noqa: E402
from ami.queues import publish  # noqa: E402
from benchmarks.overhead import memory_of, processor_seconds  # noqa: E402
from provision.guard import descendants  # noqa: E402
from tests.support.place import ROOT, new_place, until  # noqa: E402
from tests.support.worker_tasks.basic import succeed  # noqa: E402

QUEUE = "antenna-interactive"
#: How often the parent's memory is read in a run.
READINGS = 40
#: What the parent may gain per 1,000 tasks more than before, and still be level.
LEVEL_KIB = 16.0


@dataclass(frozen=True)
class Run:
    """One worker's run. ``processor_ms`` is the worker's with its children, per task; the memory is the parent's."""

    per_second: float
    processor_ms: float
    rss_mib: float
    growth_kib: float
    pss_mib: float
    pss_growth_kib: float


@dataclass(frozen=True)
class Compared:
    """The median of the pairs, now of before, above 1 where now is better, with the lowest and the highest."""

    median: float
    lowest: float
    highest: float

    @classmethod
    def of(cls, ratios: Sequence[float]) -> "Compared":
        return cls(statistics.median(ratios), min(ratios), max(ratios))

    def __str__(self) -> str:
        return f"{self.median:.3f} ({self.lowest:.3f} to {self.highest:.3f})"


@dataclass(frozen=True)
class Pairs:
    """What was measured, the first of each pair being now's."""

    pairs: tuple[tuple[Run, Run], ...]

    @property
    def rate(self) -> Compared:
        return Compared.of([now.per_second / before.per_second for now, before in self.pairs])

    @property
    def processor(self) -> Compared:
        """Processor time per task, before of now."""
        return Compared.of([before.processor_ms / now.processor_ms for now, before in self.pairs])

    @property
    def growth_kib(self) -> float:
        """What the parent gains per 1,000 tasks beyond before's."""
        return statistics.median(now.growth_kib - before.growth_kib for now, before in self.pairs)

    def missed(self, rate_target: float) -> list[str]:
        """Return the targets that are missed; processor time does not stand in for the rate."""
        wrong = []
        if self.rate.median < rate_target:
            wrong.append(f"no-op tasks/s {self.rate} of before, at least {rate_target}")
        if self.growth_kib > LEVEL_KIB:
            wrong.append(f"the parent gains {self.growth_kib:.1f} KiB per 1,000 tasks more than before")
        return wrong

    def as_json(self) -> dict[str, Any]:
        pairs = [{"now": asdict(now), "before": asdict(before)} for now, before in self.pairs]
        return {"rate": asdict(self.rate), "processor": asdict(self.processor), "pairs": pairs}

    def lines(self, rate_target: float) -> Iterator[str]:
        """Yield a table: the medians now and before, and the ratios with their spread."""
        title, target = f"{len(self.pairs)} pairs, medians", f"at least {rate_target}"
        yield f"{title:36}{'now':>9}{'before':>9}  ratio (lowest to highest)"
        yield self._line("no-op tasks/s", "per_second", f"{self.rate}, {target}")
        yield self._line("processor ms/task", "processor_ms", f"{self.processor}")
        yield self._line("parent, RSS MiB", "rss_mib")
        yield self._line(
            "parent, KiB per 1,000 tasks", "growth_kib", f"{self.growth_kib:+.1f}, at most {LEVEL_KIB:g} more"
        )
        yield self._line("parent, PSS MiB", "pss_mib")
        yield self._line("parent, PSS, KiB per 1,000 tasks", "pss_growth_kib")

    def _line(self, title: str, name: str, rest: str = "") -> str:
        now, before = (statistics.median(getattr(run, name) for run in runs) for runs in zip(*self.pairs, strict=True))
        return f"{title:36}{now:9.2f}{before:9.2f}  {rest}".rstrip()


@contextmanager
def worker(checkout: str = "") -> Any:
    """Give a place, and a function that starts the worker there, from this checkout or from another one."""
    with new_place("operations") as place:
        place.environment.pop("ANTENNA_JOURNAL_DIR")
        place.environment |= {"ANTENNA_INTERACTIVE_MAX_TASKS_PER_CHILD": "1000000"}
        place.queues("declare")
        folder = ["env", "-C", checkout, f"PYTHONPATH={checkout}"] if checkout else []
        yield place, lambda: place.start([*folder, sys.executable, "-m", "ami.topology", "worker", QUEUE])


def run(number: int, checkout: str = "") -> Run:
    """Run ``number`` messages that waited."""
    with worker(checkout) as (place, start), place.app.connection_for_read() as link, link.channel() as channel:
        publish.publish_many(succeed.signature(queue=QUEUE, ignore_result=True) for _ in range(number))
        process = start()
        left = lambda: depth(channel, QUEUE)[0]  # noqa: E731
        first = until(lambda: found if (found := left()) < number * 0.95 else 0, 120, "tasks run")
        began, spent = time.perf_counter(), tree_seconds(process.popen.pid)
        readings = _watched(process.popen.pid, left, number, began + 60 + number / 50)
        seconds, used = time.perf_counter() - began, tree_seconds(process.popen.pid) - spent
        return Run(first / seconds, 1000 * used / first, *_memory(readings, number))


def _watched(pid: int, left: Callable[[], int], number: int, until: float) -> list[tuple[int, float, float]]:
    """Wait until nothing waits; return (tasks begun, resident, proportional MiB) of the parent in between."""
    readings: list[tuple[int, float, float]] = []
    while (waiting := left()) > 0:
        if time.perf_counter() > until:
            raise SystemExit(f"{waiting} tasks still wait")
        if not readings or number - waiting - readings[-1][0] >= number / READINGS:
            found = memory_of(pid, "parent")
            readings.append((number - waiting, found.rss_mib, found.pss_mib))
        time.sleep(0.02)
    return readings


def _memory(readings: Sequence[tuple[int, float, float]], number: int) -> tuple[float, float, float, float]:
    done, resident, share = zip(*(each for each in readings if each[0] >= number / 2), strict=True)
    growths = [statistics.linear_regression(done, sizes).slope * 1024 * 1000 for sizes in (resident, share)]
    return resident[-1], growths[0], share[-1], growths[1]


def tree_seconds(pid: int) -> float:
    """Return the processor time of a process and of all that it has started."""
    return sum(processor_seconds(each) for each in (pid, *descendants(pid)))


def pair(number: int, checkout: str, *, is_first: bool) -> tuple[Run, Run]:
    """Return the runs of this checkout and of the other one, after each other."""
    if is_first:
        now = run(number)
        return now, run(number, checkout)
    before = run(number, checkout)
    return run(number), before


@contextmanager
def checkout_before(given: str, file: str) -> Iterator[str]:
    """Give the checkout that was asked for, or one of the commit before the one that added ``file``."""
    if given:
        yield given
        return
    listed = ["git", "log", "--diff-filter=A", "--format=%H", "--", file]
    *_, commit = subprocess.run(listed, cwd=ROOT, capture_output=True, check=True, text=True).stdout.split()
    with tempfile.TemporaryDirectory(prefix="antenna-before-") as folder:
        archive = subprocess.run(["git", "archive", f"{commit}^"], cwd=ROOT, capture_output=True, check=True).stdout
        subprocess.run(["tar", "-x", "-C", folder], input=archive, check=True)
        yield folder


def measured(number: int, count: int, checkout: str) -> Pairs:
    """Run so many pairs, each saying on standard error what it found and how busy the machine is."""
    found = []
    for place in range(count):
        now, before = pair(number, checkout, is_first=bool(place % 2))
        found.append((now, before))
        ratio, load = now.per_second / before.per_second, os.getloadavg()[0]
        print(f"pair {place + 1}: {ratio:.3f} ({now.per_second:.0f} tasks/s), load {load:.1f}", file=sys.stderr)
    return Pairs(tuple(found))
