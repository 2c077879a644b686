"""Takes a snapshot: one look at the broker, and a few statements."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from django.db.models.functions import Now
from django.utils import timezone

from ami.queues import overview, startup
from ami.queues.letters import rows as letters
from ami.queues.models import Worker
from ami.queues.rescue import processes
from ami.telemetry import counts, ports
from ami.telemetry.broker_figures import BrokerFigures, link, with_calls
from ami.telemetry.snapshots import promises, recent, schedule, waiting_age
from ami.telemetry.snapshots.shape import (
    QueueFigures,
    Snapshot,
    TaskFigures,
    WorkerFigures,
)
from ami.telemetry.snapshots.stops import Stops
from ami.topology.topology import Topology

#: A worker's starts are known after its next beat.
LAG_SECONDS = 12.0
#: What a governor reports, shown as it is.
GOVERNED = ("memory_used_bytes", "memory_limit_bytes", "hold_percent", "release_percent")


def take(app: Any, topology: Topology, version: int = 0) -> Snapshot:
    """Return what is now; ten statements, and those of the jobs; one more while
    workers or beats are missing. A broker that does not answer is named in ``unseen``.

    Raises:
        django.db.Error: the database did not answer.
    """
    seen = link.read(app, topology)
    workers = list(Worker.objects.order_by("node").annotate(now=Now(), counted=recent.counted()))
    stops = Stops()
    buried = letters.counts()
    now, beats = schedule.beats(workers[0].now if workers else None)
    shown = [worker_figures(row, stops, now) for row in workers]
    seen = with_calls(seen, now.timestamp())
    past = recent.read(now, workers)
    queues = tuple(
        _queue(row, seen, shown, stops, buried, past.get(row.queue) or recent.Recent(), now)
        for row in topology.workloads
    )
    return Snapshot(
        taken_at=now.timestamp(),
        version=version,
        queues=queues,
        workers=tuple(shown),
        beats=beats,
        jobs=ports.jobs(),
        unseen=(seen.unseen,) if seen.unseen else (),
        delayed=seen.delayed,
        is_starting=not (beats and all(queue.workers for queue in queues)) and startup.is_starting(),
    )


def promised(topology: Topology, seen: BrokerFigures) -> tuple[QueueFigures, ...]:
    """Return each queue with its promise, of what else there is in a snapshot nothing; five statements."""
    workers: list[Any] = list(Worker.objects.annotate(now=Now(), counted=recent.counted()))
    stops, now = Stops(), workers[0].now if workers else timezone.now()
    seen = with_calls(seen, now.timestamp())
    past = recent.read(now, workers)
    return tuple(
        _queue(row, seen, (), stops, {}, past.get(row.queue) or recent.Recent(), now) for row in topology.workloads
    )


def worker_figures(row: Any, stops: Stops, now: datetime) -> WorkerFigures:
    """Return what is shown of a worker's row."""
    shown = overview.worker_row(row, now)
    governor = row.governor or {}
    state, why = _state(row, shown, governor)
    governed: dict[str, Any] = {name: governor.get(name) for name in GOVERNED}
    return WorkerFigures(
        **{name: getattr(row, name) for name in ("node", "service", "host", "version", "concurrency", "pid")},
        state=state,
        why=why,
        seen_seconds=shown.beat_seconds,
        started_at=row.started_at.timestamp(),
        queues=tuple(row.queues),
        closed_queues=tuple(row.closed_queues),
        children=len(row.children),
        **governed,
        held_seconds=governor.get("held_seconds") if _is_held(governor) else None,
        reasons=tuple(governor.get("reasons") or ()),
        parked=stops.of_worker(row),
        running=tuple(_task(each, now) for each in row.running),
        reachable_pid=processes.reachable_pid(row),
    )


def _state(row: Any, shown: overview.WorkerRow, governor: Mapping[str, Any]) -> tuple[str, str]:
    # Its beat is missed after 20 s only. In another container the process cannot be seen.
    if shown.state != "dead" and processes.is_gone(row):
        return "dead", "its process is gone"
    if shown.state == "running" and _is_held(governor):
        return "held", "; ".join(governor.get("reasons") or ())
    return shown.state, shown.why


def _is_held(governor: Mapping[str, Any]) -> bool:
    return governor.get("state") == "held" and governor.get("mode") == "on"


def _task(running: Mapping[str, Any], now: datetime) -> TaskFigures:
    return TaskFigures(
        id=str(running.get("id", "")),
        task=str(running.get("name", "")),
        pid=int(running.get("pid") or 0),
        running_seconds=round(max(0.0, now.timestamp() - float(running.get("started_at") or 0.0)), 1),
        kib=int(running.get("kib") or 0),
        progress=str(running.get("progress") or ""),
        is_redelivered=bool(running.get("is_redelivered")),
    )


def _queue(
    row: Any,
    seen: BrokerFigures,
    workers: Iterable[WorkerFigures],
    stops: Stops,
    buried: Mapping[str, int],
    past: recent.Recent,
    now: datetime,
) -> QueueFigures:
    own = [worker for worker in workers if row.queue in worker.queues]
    waiting = seen.waiting.get(row.queue)
    oldest, at_least, is_bound = _oldest(row.queue, seen, waiting, past, now)
    paused = stops.of_queue(row.queue)
    waits, letters_in = counts.waits(past.counts), row.dead_letter_queue
    promise = promises.judge(row.wait_target_seconds, waits, waiting, at_least, paused=paused)
    return QueueFigures(
        queue=row.queue,
        service=row.service,
        wait_target_seconds=row.wait_target_seconds,
        waiting=waiting,
        running=sum(len(worker.running) for worker in own),
        delayed=None if seen.delayed_by_queue is None else seen.delayed_by_queue.get(row.queue, 0),
        consumers=seen.consumers.get(row.queue),
        dead_letters=None if seen.unseen else buried.get(letters_in, 0) + seen.letters.get(letters_in, 0),
        oldest_seconds=oldest,
        oldest_is_bound=is_bound,
        promise=promise.state,
        promise_words=promise.words,
        waits=counts.quantiles(waits),
        runs=counts.quantiles(counts.runs(past.counts)),
        per_minute=past.per_minute,
        history=tuple(past.history),
        paused=paused,
        workers=tuple(worker.node for worker in own),
    )


def _oldest(
    queue: str, seen: BrokerFigures, waiting: int | None, past: recent.Recent, now: datetime
) -> tuple[float | None, float, bool]:
    """Return the age of the oldest message, the least that it surely is, and whether the first is only a bound."""
    if waiting is None:
        return None, 0.0, False
    if not waiting or seen.tells_oldest:
        age = seen.oldest.get(queue, 0.0) if waiting else 0.0
        return age, age, False
    at_most, at_least = waiting_age.bounds(now.timestamp(), waiting, past.seen, past.uncounted_starts, LAG_SECONDS)
    return at_most, at_least, True
