"""A deployment's last day as rows: workers, what they run, samples, waits, a paused queue, beat and the audit log."""

import math
import random
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.utils import timezone
from django_celery_beat.models import PeriodicTask

from ami.celery.task_times import BUCKETS
from ami.queues import schedule
from ami.queues.diagnostics import reported
from ami.queues.models import AuditEntry, Beat, DesiredState, TickClaim, Worker
from ami.telemetry import findings
from ami.telemetry.broker_figures import BrokerFigures, link
from ami.telemetry.models import Sample, TaskHistogram
from ami.telemetry.snapshots.shape import FindingFigures

MIB = 1024**2
VERSION = "2026.6.3"
INGEST, HOUSEKEEPING, INTERACTIVE, FALLBACK = (
    "antenna-ingest",
    "antenna-housekeeping",
    "antenna-interactive",
    "antenna",
)
RESULT = "ami.jobs.tasks.process_nats_pipeline_results"
CROPS = "ami.ml.tasks.create_detection_images"
RUN_JOB = "ami.jobs.tasks.run_job"
EXPORT = "ami.exports.tasks.run_export"
CHECK = "ami.ml.tasks.check_processing_service"

#: What waits and starts a minute at most, how busy the queue is, and the buckets of its waits.
SHAPES: dict[str, tuple[int, int, float, dict[int, int]]] = {
    INGEST: (18_400, 940, 1.0, {8: 40, 10: 160, 11: 420, 12: 300, 13: 20}),
    HOUSEKEEPING: (3, 14, 0.5, {0: 9, 1: 4, 2: 1}),
    INTERACTIVE: (9, 22, 0.7, {1: 10, 2: 8, 4: 3}),
    FALLBACK: (0, 2, 0.2, {0: 2}),
}
DELAYED = {INGEST: 31, HOUSEKEEPING: 1, INTERACTIVE: 6, FALLBACK: 0}
#: How many minutes ago the last burst of each was at its height.
HEIGHT = {INGEST: 2.0, HOUSEKEEPING: 19.0, INTERACTIVE: 27.0, FALLBACK: 33.0}
WAITING = {INGEST: 17_240, HOUSEKEEPING: 1, INTERACTIVE: 212, FALLBACK: 0}

#: Node, host, queue, children, processes, memory, limit, and what is special.
WORKERS: tuple[tuple[str, str, str, int, int, int, dict[str, Any]], ...] = (
    ("ingest", "antenna-worker-1", INGEST, 16, 3_180, 4_608, {}),
    ("ingest", "antenna-worker-2", INGEST, 16, 4_010, 4_608, {"state": "held"}),
    ("housekeeping", "antenna-worker-1", HOUSEKEEPING, 2, 410, 1_024, {}),
    ("interactive", "antenna-worker-1", INTERACTIVE, 4, 1_630, 2_560, {}),
    ("interactive", "antenna-worker-2", INTERACTIVE, 4, 690, 2_560, {"closed": True}),
    ("fallback", "antenna-worker-2", FALLBACK, 2, 260, 1_024, {"parked": True}),
)
#: What runs on which worker: task, for how many seconds, memory in MiB, progress.
RUNNING: dict[str, tuple[tuple[str, float, int, str], ...]] = {
    "ingest@antenna-worker-1": (
        (RESULT, 3.4, 182, "118 of 200 results"),
        (CROPS, 6.1, 236, "31 of 40 crops"),
        (CROPS, 2.8, 204, "9 of 40 crops"),
    ),
    "ingest@antenna-worker-2": ((RESULT, 8.2, 311, "160 of 200 results"),),
    "interactive@antenna-worker-1": (
        (EXPORT, 47.0, 248, "61,000 of 184,220 occurrences"),
        (RUN_JOB, 12.6, 176, "slice 4, 3,180 images sent"),
    ),
    "housekeeping@antenna-worker-1": ((CHECK, 2.2, 96, ""),),
}


def add(rng: random.Random, job_task_id: str) -> None:
    """Write everything that is in the database."""
    now = timezone.now()
    _samples(rng)
    _histograms()
    for number, given in enumerate(WORKERS):
        _worker(number, *given, job_task_id=job_task_id)
    Beat.objects.create(name="antenna-beat:7", started_at=now - timedelta(days=2), seen_at=now)
    _schedule()
    DesiredState.objects.create(
        kind=DesiredState.Kind.QUEUE,
        name=INTERACTIVE,
        aspect=DesiredState.Aspect.PAUSED,
        value=1,
        by="user 4 operator@example.org",
        why="moving the exports' bucket",
        since=now - timedelta(seconds=250),
        until=now + timedelta(minutes=26),
    )
    _audit()


def connect() -> None:
    """Let the console see a broker with these queues, and their findings."""
    link.read = lambda *_, **__: _broker()  # type: ignore[method-assign]
    findings._look = _findings


def refresh() -> None:
    """Let every worker and the beat have reported just now, and what runs have begun as long ago as it should."""
    now = timezone.now()
    for worker in Worker.objects.all():
        begun = [seconds for _, seconds, _, _ in RUNNING.get(worker.node, ())]
        worker.running = [
            {**each, "started_at": now.timestamp() - seconds}
            for each, seconds in zip(worker.running, begun, strict=True)
        ]
        worker.seen_at = now - timedelta(seconds=3)
        worker.save(update_fields=["running", "seen_at"])
    Beat.objects.update(seen_at=now - timedelta(seconds=2))
    _ticks()


def _broker() -> BrokerFigures:
    consumers = {INGEST: 1, HOUSEKEEPING: 1, INTERACTIVE: 0, FALLBACK: 0}
    oldest = {INGEST: 88.0, HOUSEKEEPING: 0.4, INTERACTIVE: 251.0}
    return BrokerFigures(WAITING, consumers, {}, oldest, tells_oldest=True, delayed=38, delayed_by_queue=DELAYED)


def _findings() -> Any:
    refresh()
    yield FindingFigures(
        "warning",
        "held",
        "ingest@antenna-worker-2 is held by its governor for 2 min: memory 87 % of 4.5 GiB; it takes tasks again "
        "below 75 %.",
        "",
    )
    for each in reported.findings(settings.ANTENNA_TOPOLOGY, reported.workers()):
        yield FindingFigures(each.level, each.name, each.sentence, each.target)


def _wave(minutes_ago: float, name: str) -> float:
    """Return how busy a queue was, 0 to 1: bursts of about twenty minutes on a tide of four hours."""
    tide = 0.55 + 0.45 * math.sin((30 - minutes_ago) / 76)
    burst = max(0.0, math.cos((minutes_ago - HEIGHT[name]) / 6.1)) ** 3
    return max(0.03, 0.35 * tide + 0.65 * burst)


def _samples(rng: random.Random) -> None:
    now = timezone.now().replace(microsecond=0)
    moments = [(5, now - timedelta(seconds=5 * number)) for number in range(720)]
    moments += [(60, now.replace(second=0) - timedelta(minutes=number)) for number in range(1440)]
    whole = now.replace(minute=0, second=0)
    moments += [(3600, whole - timedelta(hours=number)) for number in range(24 * 8)]
    rows = [_queue_sample(rng, name, seconds, at, now) for name in SHAPES for seconds, at in moments]
    for node, host, _, processes, used, limit, _ in WORKERS:
        rows += [
            _worker_sample(rng, f"{node}@{host}", processes, used, limit, seconds, at, now) for seconds, at in moments
        ]
    Sample.objects.bulk_create(rows, batch_size=500)


def _queue_sample(rng: random.Random, name: str, seconds: int, at: Any, now: Any) -> Sample:
    most, rate, busy, _ = SHAPES[name]
    ago = (now - at).total_seconds() / 60
    level = _wave(ago, name) * rng.uniform(0.9, 1.1)
    paused = name == INTERACTIVE and ago < 4.2
    waiting = int(212 * (1 - ago / 4.2)) if paused else int(most * level * (rng.random() < busy or most > 100))
    started = 0 if paused else int(rate * seconds / 60 * (0.55 + 0.45 * level) + rng.random())
    return Sample(
        kind=Sample.Kind.QUEUE,
        name=name,
        resolution=seconds,
        at=at,
        waiting=waiting,
        delayed=0,
        running=0 if paused else round(min(16.0, rate / 40) * level, 1),
        consumers=1,
        started=started,
        ended=started,
        failed=sum(rng.random() < 0.006 for _ in range(min(started, 400))) if name == INGEST else 0,
    )


def _worker_sample(
    rng: random.Random, node: str, processes: int, used: int, limit: int, seconds: int, at: Any, now: Any
) -> Sample:
    ago = (now - at).total_seconds() / 60
    share = 0.62 + 0.38 * math.exp(-ago / 25) + 0.05 * math.sin(ago / 3) + rng.uniform(-0.01, 0.01)
    return Sample(
        kind=Sample.Kind.WORKER,
        name=node,
        resolution=seconds,
        at=at,
        memory_used_bytes=int(used * MIB * share),
        memory_limit_bytes=limit * MIB,
        children=processes,
        running=2,
        held=0,
        version=VERSION,
    )


def _histograms() -> None:
    whole = timezone.now().replace(second=0, microsecond=0)
    tasks = {INGEST: RESULT, HOUSEKEEPING: CHECK, INTERACTIVE: EXPORT, FALLBACK: "celery.ping"}
    rows = []
    for name, (_, rate, _, buckets) in SHAPES.items():
        for minute in range(75):
            paused = name == INTERACTIVE and minute < 4
            if paused:
                continue
            moved = 1 if _wave(minute, name) > 0.6 else 0
            waits, runs = [0] * BUCKETS, [0] * BUCKETS
            for bucket, count in buckets.items():
                waits[min(BUCKETS - 1, bucket + moved if name == INGEST else bucket)] = count
            runs[4], runs[6], runs[7] = rate // 2, rate // 3, rate // 12
            rows.append(
                TaskHistogram(
                    queue=name,
                    task=tasks[name],
                    at=whole - timedelta(minutes=minute),
                    started=rate,
                    succeeded=rate,
                    waits=waits,
                    runs=runs,
                )
            )
    TaskHistogram.objects.bulk_create(rows)


def _worker(
    number: int,
    name: str,
    host: str,
    queue: str,
    processes: int,
    used: int,
    limit: int,
    special: dict[str, Any],
    *,
    job_task_id: str,
) -> None:
    now, node = timezone.now(), f"{name}@{host}"
    held, parked = special.get("state") == "held", bool(special.get("parked"))
    running = [
        {
            "id": job_task_id if task == RUN_JOB else f"{number}e5b7c1a-4d21-4f0e-9a3d-{place:012d}",
            "name": task,
            "pid": 300 + place,
            "started_at": now.timestamp() - seconds,
            "kib": mib * 1024,
            "progress": progress,
        }
        for place, (task, seconds, mib, progress) in enumerate(RUNNING.get(node, ()))
    ]
    Worker.objects.create(
        node=node,
        service=settings.ANTENNA_TOPOLOGY.workload(queue).service,
        host=host,
        queues=[queue],
        closed_queues=[queue] if special.get("closed") or queue == INTERACTIVE else [],
        pool="prefork",
        version=VERSION,
        pid=7 + number,
        children=[[300 + place, 1] for place in range(0 if parked else processes)],
        started_at=now - timedelta(hours=31 + number),
        seen_at=now,
        is_connected=True,
        is_parked=parked,
        concurrency=processes,
        running=running,
        governor={
            "mode": "on",
            "state": "held" if held else "open",
            "memory_used_bytes": used * MIB,
            "memory_limit_bytes": limit * MIB,
            "hold_percent": 85.0,
            "release_percent": 75.0,
            "held_seconds": 134.0 if held else None,
            "reasons": ["memory 87 % of 4.5 GiB"] if held else [],
        },
    )


def _schedule() -> None:
    schedule.synchronise()
    PeriodicTask.objects.filter(task="ami.main.tasks.purge_old_rows").update(enabled=False)
    _ticks()


def _ticks() -> None:
    """Let every entry have ticked within its interval, but for one that is late."""
    now = timezone.now()
    for number, entry in enumerate(PeriodicTask.objects.order_by("name")):
        every = entry.interval.schedule.run_every.total_seconds() if entry.interval else 3600
        late = entry.task == "ami.jobs.tasks.audit_stored_results"
        ago = every * 2.6 if late else every * 0.4
        at = now - timedelta(seconds=ago)
        PeriodicTask.objects.filter(pk=entry.pk).update(last_run_at=at, total_run_count=900 + 37 * number)
        TickClaim.objects.update_or_create(
            entry=entry,
            defaults={
                "number": 900 + 37 * number,
                "runs": 900 + 37 * number,
                "task_id": f"b7c1a{number:03d}-4d21-4f0e-9a3d-5d3c0f1e2a6b",
                "claimed_at": at,
                "claimed_by": "antenna-beat:7",
                "ended_at": at + timedelta(seconds=1.2),
            },
        )


def _audit() -> None:
    now, people = timezone.now(), ("user 4 operator@example.org", "user 2 deployer@example.org", "command:deploy")
    rows = (
        (250, people[0], "pause", f"queue {INTERACTIVE}", "moving the exports' bucket", "admin"),
        (2100, people[1], "replay letters", "32 letters: OSError", "disk has room again", "admin"),
        (4300, people[2], "restart", "service celeryworker_ingest", f"version {VERSION}", "command"),
        (9100, people[0], "park", "node fallback@antenna-worker-2", "host gets new memory", "admin"),
        (15_000, people[1], "cancel job", "job 11", "wrong capture set", "admin"),
        (26_000, people[1], "scale", "node ingest@antenna-worker-1", "night of four stations", "api"),
        (61_000, people[0], "enable", "task ami.main.tasks.regroup_events", "", "admin"),
    )
    for seconds, who, verb, target, why, source in rows:
        made = AuditEntry.objects.create(who=who, verb=verb, target=target, why=why, source=source)
        AuditEntry.objects.filter(pk=made.pk).update(at=now - timedelta(seconds=seconds))
    letters = AuditEntry.objects.get(verb="scale")
    AuditEntry.objects.filter(pk=letters.pk).update(before={"concurrency": 12}, after={"concurrency": 16})
