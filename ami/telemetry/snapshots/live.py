"""Takes a snapshot: one look at the broker, and a few statements."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from django.db.models import Max
from django.db.models.functions import Now
from django.utils import timezone

from ami.queues import overview
from ami.queues.letters import rows as letters
from ami.queues.models import Beat, DesiredState, TickClaim, Worker
from ami.telemetry import counts, ports
from ami.telemetry.broker_figures import BrokerFigures, link
from ami.telemetry.snapshots import promises, recent, waiting_age
from ami.telemetry.snapshots.shape import (
    BeatFigures,
    QueueFigures,
    Snapshot,
    Stop,
    TaskFigures,
    WorkerFigures,
)
from ami.topology.topology import Topology

#: A worker's starts are known after its next beat.
LAG_SECONDS = 12.0

Aspect, Kind = DesiredState.Aspect, DesiredState.Kind


def take(app: Any, topology: Topology, version: int = 0) -> Snapshot:
    """Return what is now; nine statements, and those of the jobs. A broker that does not answer is named in ``unseen``.

    Raises:
        django.db.Error: the database did not answer.
    """
    seen = link.read(app, topology)
    workers = list(Worker.objects.order_by("node").annotate(now=Now()))
    stops = _stops()
    buried = letters.counts()
    beats = list(Beat.objects.annotate(now=Now()).order_by("name"))
    last_tick = TickClaim.objects.aggregate(last=Max("claimed_at"))["last"]
    seen_rows: list[Any] = [*workers, *beats]
    now = next((row.now for row in seen_rows), None) or timezone.now()
    shown = [worker_figures(row, stops, now) for row in workers]
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
        beats=tuple(_beat(row, last_tick) for row in beats),
        jobs=ports.jobs(),
        unseen=(seen.unseen,) if seen.unseen else (),
        delayed=seen.delayed,
    )


def _stops() -> dict[tuple[str, str, str], Stop]:
    """Return what operators have stopped, by kind, name and aspect."""
    rows = DesiredState.objects.filter(aspect__in=(Aspect.PAUSED, Aspect.PARKED)).annotate(now=Now())
    return {
        (row.kind, row.name, row.aspect): Stop(
            row.by, row.why, row.since.timestamp(), row.until.timestamp() if row.until else None
        )
        for row in rows
        if row.value and not (row.until and row.until <= row.now)
    }


def worker_figures(row: Any, stops: Mapping[tuple[str, str, str], Stop], now: datetime) -> WorkerFigures:
    """Return what is shown of a worker's row."""
    shown = overview.worker_row(row, now)
    governor = row.governor or {}
    is_held = governor.get("state") == "held" and governor.get("mode") == "on"
    parked = next(
        (
            stops[key]
            for key in (
                (Kind.NODE, row.node, Aspect.PARKED),
                (Kind.HOST, row.host, Aspect.PARKED),
                (Kind.SERVICE, row.service, Aspect.PARKED),
            )
            if key in stops
        ),
        None,
    )
    return WorkerFigures(
        node=row.node,
        service=row.service,
        host=row.host,
        version=row.version,
        state="held" if is_held and shown.state == "running" else shown.state,
        why="; ".join(governor.get("reasons") or ()) if is_held and not shown.why else shown.why,
        seen_seconds=shown.beat_seconds,
        started_at=row.started_at.timestamp(),
        queues=tuple(row.queues),
        closed_queues=tuple(row.closed_queues),
        concurrency=row.concurrency,
        children=len(row.children),
        pid=row.pid,
        memory_used_bytes=governor.get("memory_used_bytes"),
        memory_limit_bytes=governor.get("memory_limit_bytes"),
        hold_percent=governor.get("hold_percent"),
        release_percent=governor.get("release_percent"),
        held_seconds=governor.get("held_seconds") if is_held else None,
        reasons=tuple(governor.get("reasons") or ()),
        parked=parked if row.is_parked else None,
        running=tuple(_task(each, now) for each in row.running),
    )


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


def _beat(row: Any, last_tick: datetime | None) -> BeatFigures:
    return BeatFigures(
        row.name, round((row.now - row.seen_at).total_seconds(), 1), last_tick.timestamp() if last_tick else None
    )


def _queue(
    row: Any,
    seen: BrokerFigures,
    workers: Iterable[WorkerFigures],
    stops: Mapping[tuple[str, str, str], Stop],
    buried: Mapping[str, int],
    past: recent.Recent,
    now: datetime,
) -> QueueFigures:
    own = [worker for worker in workers if row.queue in worker.queues]
    waiting = seen.waiting.get(row.queue)
    oldest, at_least, is_bound = _oldest(row.queue, seen, waiting, past, now)
    paused = stops.get((Kind.QUEUE, row.queue, Aspect.PAUSED))
    waits, letters_in = counts.waits(past.counts), row.dead_letter_queue
    promise = promises.judge(row.wait_target_seconds, waits, waiting, at_least, paused=paused)
    return QueueFigures(
        queue=row.queue,
        service=row.service,
        wait_target_seconds=row.wait_target_seconds,
        waiting=waiting,
        running=sum(len(worker.running) for worker in own),
        delayed=None,
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
