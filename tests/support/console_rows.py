"""Many rows of all that the console shows, and the addresses of every page of it."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.db.models.functions import Now
from django.urls import reverse
from django.utils import timezone
from django_celery_beat.models import IntervalSchedule, PeriodicTask

from ami.admission.models import Call, Run
from ami.celery.task_times import LENGTH
from ami.jobs.models import Job, JobImage
from ami.jobs.models.states import JobStatus
from ami.jobs.services import operations
from ami.main.models import SourceImage
from ami.queues.models import (
    AuditEntry,
    Beat,
    DesiredState,
    Letter,
    LetterEvent,
    Replay,
    TaskFailure,
    TaskRun,
    TickClaim,
    Worker,
)
from tests.support.console_pages import many_letters
from tests.support.product import admin_rows, factories

HOSTS, TASKS, RUNNING = 4, 5, 3
VERBS = ("pause", "resume", "park", "unpark", "replay", "discard", "cancel", "scale")
LONG_TRACE = 'Traceback (most recent call last):\n  File "ami/some.py", line 1, in run\n' * 10


def seed(letters: int, entries: int, workers: int, images: int) -> None:
    """Write so many letters with their failures, audit entries, workers with what they run, and images of each job."""
    many_letters(letters)
    _failures()
    _audit_entries(entries)
    _workers(workers)
    _calls()
    _schedule()
    _jobs(images)


def _failures() -> None:
    now = timezone.now()
    TaskFailure.objects.bulk_create(
        (
            TaskFailure(
                task_id=f"task-{number}",
                retries=tries,
                delivery=0,
                task=task,
                kind="error",
                exception="ValueError",
                message=f"it is {number}",
                traceback=LONG_TRACE,
                failed_at=now - timedelta(seconds=10 * number + tries),
                cause=cause,
            )
            for number, (task, cause) in enumerate(Letter.objects.order_by("pk").values_list("task", "cause"))
            for tries in range(2)
        ),
        batch_size=2000,
    )
    newest = Letter.objects.latest("pk")
    LetterEvent.objects.bulk_create(
        LetterEvent(letter=newest, at=now, what=LetterEvent.What.REPLAYED, by="user 1 Ann", why="fixed")
        for _ in range(10)
    )
    Replay.objects.bulk_create(Replay(state=Replay.State.RUNNING, **_replay()) for _ in range(60))


def _replay() -> dict[str, Any]:
    now = timezone.now()
    which = {"selection": {"cause": f"{3:040x}"}, "total": 100, "most_pk": 0}
    return which | {"by": "user 1 Ann", "began_at": now, "until": now}


def _audit_entries(count: int) -> None:
    targets = [f"queue {queue}" for queue in queues()]
    AuditEntry.objects.bulk_create(
        (
            AuditEntry(
                who=f"user {number % 9} person{number % 9}",
                verb=VERBS[number % len(VERBS)],
                target=targets[number % len(targets)],
                after={"number": number},
                why="a reason",
                source="console",
            )
            for number in range(count)
        ),
        batch_size=5000,
    )


def _calls() -> None:
    """Write calls that wait in many lanes, that run, and that have stopped their key."""
    task, now = "ami.exports.tasks.run_export", timezone.now()
    fixed = {"task": task, "queue": queues()[1], "arguments": "[[], {}]", "options": "{}"}
    for number in range(120):
        keys = {
            "permit_key": f"{task}:{number}",
            "fair_key": f"project_id={number}",
            "lane": f"project_id={number}|{task}:{number}|",
        }
        Call.objects.create(task_id=f"waits-{number}", key=f"{task}:{number}", key_text=str(number), **keys, **fixed)
    for call in Call.objects.order_by("pk")[:60]:
        run = Run(pk=f"{call.pk:032x}", call=call.pk, task=task, queue=call.queue, key=call.key, send_again_at=now)
        run.save(force_insert=True)
        Call.objects.filter(pk=call.pk).update(run=run.pk)
    Call.objects.filter(run=None).order_by("pk").filter(pk__lte=Call.objects.earliest("pk").pk + 70).update(
        stopped_at=now
    )
    wish = {"by": "user 1 Ann", "why": "slow disks", "since": Now()}
    Kind, Aspect = DesiredState.Kind, DesiredState.Aspect  # noqa: N806
    DesiredState.objects.create(kind=Kind.PERMITS, name=task, aspect=Aspect.MOST, value=1, **wish)
    DesiredState.objects.create(kind=Kind.FAIR_KEY, name="project_id=7", aspect=Aspect.WEIGHT, value=3, **wish)


def nodes(count: int) -> list[str]:
    """Return the names of workers, as samples have them."""
    return [f"worker-{number}@a" for number in range(count)]


def _workers(count: int) -> None:
    now, known = timezone.now(), queues()
    for number, node in enumerate(nodes(count)):
        queue = known[number % len(known)]
        running = [_running(f"run-{number}-{each}", now) for each in range(RUNNING)]
        Worker.objects.create(
            node=node,
            host=f"host-{number % HOSTS}",
            service=f"celeryworker_{number % len(known)}",
            queues=[queue],
            version="1.2",
            pid=100 + number,
            children=[[1000 + each, 5] for each in range(8)],
            connection_name=f"{node}/1",
            started_at=now - timedelta(hours=5),
            seen_at=Now(),
            is_connected=True,
            concurrency=8,
            running=running,
            totals={queue: {f"task-{task}": [10.0] * LENGTH for task in range(TASKS)}},
            governor=_governor(),
        )
        TaskRun.objects.bulk_create(
            TaskRun(task_id=each["id"], task=each["name"], node=node, started_at=now, seen_at=Now()) for each in running
        )
    Beat.objects.create(name="host-0:7", started_at=now, seen_at=Now())
    stop = {"value": 1, "by": "user 1 Ann", "why": "maintenance", "since": Now()}
    Kind, Aspect = DesiredState.Kind, DesiredState.Aspect  # noqa: N806
    DesiredState.objects.create(kind=Kind.QUEUE, name=queues()[1], aspect=Aspect.PAUSED, **stop)
    DesiredState.objects.create(kind=Kind.NODE, name=nodes(1)[0], aspect=Aspect.PARKED, **stop)


def _governor() -> dict[str, Any]:
    memory = {"memory_used_bytes": 1_000_000_000, "memory_limit_bytes": 2_000_000_000}
    return {"mode": "on", "state": "open", "hold_percent": 85.0, "release_percent": 75.0, **memory}


def _running(task_id: str, now: Any) -> dict[str, Any]:
    started = now.timestamp() - 60
    return {"id": task_id, "name": "ami.jobs.tasks.run_job", "pid": 1000, "started_at": started, "progress": "3 of 9"}


def _schedule() -> None:
    every, _ = IntervalSchedule.objects.get_or_create(every=1, period="minutes")
    task, now = "ami.main.tasks.purge_old_rows", timezone.now()
    for number in range(20):
        entry = PeriodicTask.objects.create(name=f"each {number}", task=task, interval=every, last_run_at=now)
        TickClaim.objects.create(entry=entry, number=1, task_id=f"tick-{number}", claimed_at=now, ends=1)


def _jobs(images: int) -> None:
    station, pipeline = factories.station(), admin_rows.pipeline()
    paths = {"project": station.project, "deployment": station, "size": 10, "timestamp": factories.NIGHT}
    captures = SourceImage.objects.bulk_create(SourceImage(path=f"{number}.jpg", **paths) for number in range(images))
    for number in range(10):
        params: dict[str, Any] = {"source_image_ids": []}
        job = operations.create("ml", station.project, name=f"Night {number}", pipeline=pipeline, params=params)
        Job.objects.filter(pk=job.pk).update(status=JobStatus.STARTED, task_id=f"run-0-{number}")
        JobImage.objects.bulk_create(
            (JobImage(job=job, source_image=each, position=place) for place, each in enumerate(captures)),
            batch_size=2000,
        )


def queues() -> list[str]:
    return [row.queue for row in settings.ANTENNA_TOPOLOGY.workloads]


def addresses() -> dict[str, list[str]]:
    """Return addresses of the console's pages by the names of its URLs, the rows' pages of rows that there are."""
    queue, worker, letter, run = queues()[0], nodes(1)[0], Letter.objects.latest("pk"), TaskRun.objects.all()[0]
    letters, audit = reverse("console:letter_list"), reverse("console:audit")

    def page(name: str, *given: Any, queries: tuple[str, ...] = ("",)) -> list[str]:
        return [reverse(f"console:{name}", args=given) + query for query in queries]

    spans = ("?span=1h", "?span=24h", "?span=7d")
    cause = f"{3:040x}"
    return {
        "overview": page("overview", queries=("", "?live=overview", "?format=json")),
        "queue": page("queue", queue, queries=("", "?live=status", "?live=tasks", "?format=csv&table=series&span=7d")),
        "series": page("series", queue, queries=spans),
        "peek": page("peek", queue),
        "lever": [*page("lever", "pause", queue), *page("lever", "purge", queue), *page("lever", "stop", worker)],
        "workers": page("workers", queries=("", "?live=workers", "?host=host-1", "?format=csv")),
        "worker": [*page("worker", worker, queries=("", "?span=24h")), *page("worker", "host-1")],
        "calls": page("calls", queries=("", "?live=calls", "?format=csv&table=holders")),
        "letters": page("letters", queries=("", "?state=any", "?text=is", "?format=csv")),
        "letter_list": [f"{letters}{query}" for query in ("", "?page=100", "?text=task-7", "?state=any")],
        "letter_group": page("letter_group", cause, queries=("", "?page=3")),
        "letter": page("letter", letter.pk),
        "letter_edit": page("letter_edit", letter.pk),
        "replays": page("replays", queries=("", "?live=table")),
        "schedule": page("schedule", queries=("", "?live=table")),
        "audit": [f"{audit}{query}" for query in ("", "?page=1000", "?verb=pause", "?who=person3", "?target=ingest")],
        "handbook": page("handbook"),
        "handbook_page": page("handbook_page", "admission"),
        "task": [*page("task", letter.task_id), *page("task", run.task_id), *page("task", "without-a-trace")],
    }


def admin_addresses() -> list[str]:
    """Return the pages of the admin that the console leads to: a running job, and the index."""
    job = Job.objects.filter(status=JobStatus.STARTED).latest("pk")
    return [reverse("admin:index"), reverse("admin:jobs_job_change", args=[job.pk])]


def all_addresses() -> Iterator[tuple[str, str]]:
    """Yield (the name of the URL, the address) of every page."""
    for name, found in addresses().items():
        yield from ((name, address) for address in found)
    yield from (("admin", address) for address in admin_addresses())
