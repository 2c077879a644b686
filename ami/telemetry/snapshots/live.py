"""Takes a snapshot: one look at the broker, and a few statements."""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Max
from django.db.models.functions import Now
from django.utils import timezone

from ami.celery import task_times
from ami.queues import overview
from ami.queues.letters import rows as letters
from ami.queues.models import Beat, DesiredState, TickClaim, Worker
from ami.telemetry import counts, ports
from ami.telemetry.broker_figures import BrokerFigures, link
from ami.telemetry.models import Sample, TaskHistogram
from ami.telemetry.snapshots import promises, waiting_age
from ami.telemetry.snapshots.shape import (
    BeatFigures,
    QueueFigures,
    Snapshot,
    Stop,
    TaskFigures,
    WorkerFigures,
)
from ami.topology.topology import Topology

MINUTE = timedelta(minutes=1)
#: Waits and run times are of this time.
RECENT = timedelta(minutes=5)
HISTORY_MINUTES = 60

Aspect, Kind = DesiredState.Aspect, DesiredState.Kind


def take(app: Any, topology: Topology, version: int = 0) -> Snapshot:
    """Return what is now; eight statements. A broker that does not answer is named in ``unseen``.

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
    recent = _recent(now)
    history = _history(now)
    queues = tuple(
        _queue(row, seen, shown, stops, buried, recent.get(row.queue), history.get(row.queue, []), now)
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


def _recent(now: datetime) -> dict[str, tuple[list[float], list[float]]]:
    """Return per queue the totals of the last five minutes, and those of the last one."""
    found: dict[str, tuple[list[float], list[float]]] = {}
    rows = TaskHistogram.objects.filter(resolution=60, at__gt=now - RECENT - MINUTE)
    for row in rows:
        whole, last = found.setdefault(row.queue, (counts.empty(), counts.empty()))
        counts.add(whole, counts.of_row(row))
        if row.at > now - 2 * MINUTE:
            counts.add(last, counts.of_row(row))
    return found


def _history(now: datetime) -> dict[str, list[Any]]:
    """Return per queue the samples of each minute of the last hour, and the raw ones since."""
    rows = Sample.objects.filter(kind=Sample.Kind.QUEUE, resolution=60, at__gt=now - MINUTE * HISTORY_MINUTES).order_by(
        "at"
    )
    found: dict[str, list[Any]] = {}
    for row in rows.only("name", "at", "waiting", "started"):
        found.setdefault(row.name, []).append(row)
    return found


def _queue(
    row: Any,
    seen: BrokerFigures,
    workers: Iterable[WorkerFigures],
    stops: Mapping[tuple[str, str, str], Stop],
    buried: Mapping[str, int],
    recent: tuple[list[float], list[float]] | None,
    history: list[Any],
    now: datetime,
) -> QueueFigures:
    own = [worker for worker in workers if row.queue in worker.queues]
    whole, last = recent or (counts.empty(), counts.empty())
    waiting = seen.waiting.get(row.queue)
    oldest, is_bound = _oldest(row.queue, seen, waiting, history, now)
    paused = stops.get((Kind.QUEUE, row.queue, Aspect.PAUSED))
    waits = counts.waits(whole)
    promise = promises.judge(row.wait_target_seconds, waits, waiting, oldest, is_bound=is_bound, paused=paused)
    minutes = max(1.0, min(2.0, 1.0 + now.second / 60))
    return QueueFigures(
        queue=row.queue,
        service=row.service,
        wait_target_seconds=row.wait_target_seconds,
        waiting=waiting,
        running=sum(len(worker.running) for worker in own),
        delayed=None,
        consumers=seen.consumers.get(row.queue),
        dead_letters=None if seen.unseen else buried.get(row.queue, 0) + seen.letters.get(f"{row.queue}.dlq", 0),
        oldest_seconds=oldest,
        oldest_is_bound=is_bound,
        promise=promise.state,
        promise_words=promise.words,
        waits=counts.quantiles(waits),
        runs=counts.quantiles(counts.runs(whole)),
        per_minute={
            "started": round(last[task_times.STARTED] / minutes, 1),
            "ended": round(counts.ended(last[:4]) / minutes, 1),
            "failed": round(last[task_times.FAILED] / minutes, 1),
        },
        history=tuple(each.waiting for each in history),
        paused=paused,
        workers=tuple(worker.node for worker in own),
    )


def _oldest(
    queue: str, seen: BrokerFigures, waiting: int | None, history: list[Any], now: datetime
) -> tuple[float | None, bool]:
    """Return the age of the oldest message, and whether it is only the most that it can be."""
    if waiting is None:
        return None, False
    if not waiting or seen.tells_oldest:
        return seen.oldest.get(queue, 0.0), False
    moments = [waiting_age.Seen(each.at.timestamp(), each.waiting or 0, each.started or 0) for each in history]
    return waiting_age.bounds(now.timestamp(), waiting, moments)[0], True
