"""``python -m benchmarks.admission``: what a staged call costs, beside a confirmed publish in the same run.

- call: ``delay()`` of a task with ``outbox=True`` beside a confirmed ``delay()``.
- gate: ``delay()`` of a task without a policy, with the gate and without it.
- dispatch: calls picked and published per second while many wait.
- delayed keys: picks of a due call behind 10,000 keys that are due later, beside picks behind 10 of them.
- held keys: how soon a worker begins a due call behind 10,000 keys whose rate is not due, beside 5 s.
- permits: how much of two permits is in use while calls wait for them, of 1 s and of 50 ms.
- run: calls from ``delay()`` to the end of the last one in a worker of four processes, beside the same bare task.

The ways alternate. Run it on services: ``python -m provision run --durable --need postgres,rabbitmq -- ...``.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings.test")

import django

django.setup()

import numpy as np  # noqa: E402
from django.core.management import call_command  # noqa: E402
from django.db import connection  # noqa: E402
from django.utils import timezone  # noqa: E402

from ami.admission import leases, picks, rows, run_publisher  # noqa: E402
from ami.admission.models import Bucket, Call, Run  # noqa: E402
from ami.celery import staged_calls  # noqa: E402
from benchmarks import frame  # noqa: E402
from benchmarks.frame import Figure  # noqa: E402
from tests.support.admission import effects, many_calls  # noqa: E402
from tests.support.place import Place, new_place, until  # noqa: E402
from tests.support.worker_tasks import admitted, basic  # noqa: E402

QUEUE = "antenna"
#: Calls per second: each message is made by its task's `apply_async`, which takes 0.4 ms.
DISPATCHED = 600.0
TASKS = "tests.support.worker_tasks.admitted,tests.support.worker_tasks.basic"


def _figure(what: str, per_second: float, reference: float, ratio: float, target: float) -> Figure:
    return Figure(what, "/s", per_second, "", reference, ratio, at_least=target or None)


def _rate(work: Callable[[], Any], count: int) -> float:
    began = time.perf_counter()
    for _ in range(count):
        work()
    return count / (time.perf_counter() - began)


def _pairs(what: str, target: float, pairs: list[tuple[float, float]]) -> Figure:
    own, reference = (float(np.median(column)) for column in zip(*pairs, strict=True))
    return _figure(what, own, reference, float(np.median([a / b for a, b in pairs])), target)


def _forget() -> None:
    Call.objects.all().delete()
    Run.objects.all().delete()


def measure_call(count: int, rounds: int) -> Figure:
    pairs = []
    for _ in range(rounds):
        pairs.append((_rate(lambda: admitted.sent.delay(1), count), _rate(basic.succeed.delay, count)))
        _forget()
    return _pairs("call: staged delay() / confirmed delay()", 1.0, pairs)


def measure_gate(count: int, rounds: int) -> Figure:
    pairs = []
    for _ in range(rounds):
        own = _rate(basic.succeed.delay, count)
        staged_calls.connect(None)
        reference = _rate(basic.succeed.delay, count)
        staged_calls.connect(rows.DatabaseAdmission())
        pairs.append((own, reference))
    return _pairs("gate: delay() without a policy / without the gate", 0.97, pairs)


def measure_dispatch(app: Any, waiting: int, batches: int) -> Figure:
    """Pick and publish so many batches while ``waiting`` calls wait; the target is a number per second."""
    made = [
        Call(task=admitted.sent.name, task_id=f"waits-{number}", queue=QUEUE, arguments="[[1], {}]", options="{}")
        for number in range(waiting)
    ]
    Call.objects.bulk_create(made, batch_size=1000)
    until(lambda: leases.acquire([QUEUE], "benchmark"), 30)
    policies, done, began = picks.staged_tasks(app), 0, time.perf_counter()
    for _ in range(batches):
        picked = picks.pick(policies, QUEUE, "benchmark", 10**9)
        run_publisher.confirmed(run_publisher.publish(app, picked))
        done += len(picked)
    seconds = time.perf_counter() - began
    _forget()
    leases.release("benchmark")
    return _figure(f"dispatch: with {waiting} waiting", done / seconds, DISPATCHED, done / seconds / DISPATCHED, 1.0)


def measure_delayed_keys(app: Any, many: int, rounds: int) -> Figure:
    """Pick a due call behind many keys that are due later, and behind ten of them."""
    later, policies = timezone.now() + timedelta(hours=1), picks.staged_tasks(app)
    pairs = []
    for _ in range(rounds):
        rates = []
        for keys in (many, 10):
            many_calls(admitted.fair, keys, not_before=later, ready=False)
            until(lambda: leases.acquire([QUEUE], "benchmark"), 30)
            rates.append(_rate(lambda: _pick_one(policies), 20))
            _forget()
        pairs.append((rates[0], rates[1]))
    leases.release("benchmark")
    return _pairs(f"delayed keys: a pick behind {many} / behind 10", 1 / 3, pairs)


def _pick_one(policies: Any) -> None:
    called = admitted.fair.delay(key="now", number=1)
    picked = picks.pick(policies, QUEUE, "benchmark", 10**9)
    assert [each.call.task_id for each in picked] == [called.id]
    Run.objects.all().delete()


def measure_held_keys(place: Place, many: int) -> Figure:
    """Let a call begin while as many keys wait for their rate; the figure is one over the seconds that it waited."""
    many_calls(admitted.rare, many)
    keys = list(Call.objects.filter(task=admitted.rare.name).values_list("rate_key", flat=True))
    arrival = time.time() + 3600 * 3
    Bucket.objects.bulk_create((Bucket(key=key, arrival=arrival) for key in keys), batch_size=1000)
    waited = []
    for _ in range(5):
        before, began = _ended(place, "sent"), time.perf_counter()
        admitted.sent.delay(1)
        until(lambda least=before: _ended(place, "sent") > least, 60)
        waited.append(time.perf_counter() - began)
    _forget()
    Bucket.objects.all().delete()
    slowest = max(waited)
    return _figure(f"held keys: a call behind {many}, slowest of 5", 1 / slowest, 1 / 5.0, 5.0 / slowest, 1.0)


def measure_run(place: Place, count: int, rounds: int) -> Figure:
    pairs = []
    for _ in range(rounds):
        own = _until_run(place, lambda: admitted.sent.delay(1), "sent", count)
        pairs.append((own, _until_run(place, lambda: admitted.plain.delay(1), "plain", count)))
    target = 0.5 if connection.vendor == "postgresql" else 0.4
    return _pairs("run: staged / bare, from call to the last end", target, pairs)


def _until_run(place: Place, call: Callable[[], Any], task: str, count: int) -> float:
    before, began = _ended(place, task), time.perf_counter()
    for _ in range(count):
        call()
    until(lambda: _ended(place, task) >= before + count, 300)
    return count / (time.perf_counter() - began)


def measure_permits(place: Place, seconds: float, count: int, target: float) -> Figure:
    """Return the work time per second of two permits, from the first begin to the last end; two would be all."""
    key = f"{seconds} s"
    for number in range(count):
        admitted.limited.delay(key=key, number=number, seconds=seconds)
    until(lambda: len(effects(place, what="end", key=key)) >= count, 300)
    at = [line["at"] for line in effects(place, key=key)]
    used = count * seconds / (max(at) - min(at))
    return _figure(f"permits: in use at tasks of {seconds:g} s", used, 2.0, used / 2.0, target)


def _ended(place: Place, task: str) -> int:
    """Count the records of a task without reading them: who looks on should cost nothing."""
    return sum(path.read_bytes().count(f'.{task}"'.encode()) for path in (place.folder / "journal").glob("**/*.jsonl"))


def figures(quick: bool) -> Iterator[Figure]:
    """Measure; a quick run only shows that it works."""
    count, rounds, waiting = (100, 2, 5_000) if quick else (500, 5, 50_000)
    call_command("migrate", verbosity=0)
    with new_place("admission-benchmark") as place:
        place.environment |= {"ANTENNA_EXTRA_TASKS": TASKS, "ANTENNA_FALLBACK_CONCURRENCY": "4"}
        place.use_test_database()  # On SQLite, too, the workers have this process's.
        place.queues("declare")
        yield measure_call(count, rounds)
        yield measure_gate(count, rounds)
        yield measure_dispatch(place.app, waiting, 20)
        yield measure_delayed_keys(place.app, 10_000, rounds)
        place.queues("purge", QUEUE, "--yes")
        place.worker(QUEUE)
        yield measure_held_keys(place, 10_000)
        yield measure_run(place, count, rounds)
        yield measure_permits(place, 1.0, count // 20, 0.95)
        yield measure_permits(place, 0.05, 4 * (count // 20), 0.0)


if __name__ == "__main__":
    sys.exit(frame.main("admission", __doc__, {"admission": figures}))
