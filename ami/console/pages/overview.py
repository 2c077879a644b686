"""The overview: what is wrong, what each queue promises and does, and what runs."""

from dataclasses import asdict, replace
from typing import Any

from django.conf import settings

from ami.console import quantities
from ami.console.findings import finding_row, is_of_job
from ami.console.levers import LEVERS, VIEW_JOBS
from ami.console.page import Page
from ami.console.tables import Column, Row, Table
from ami.queues import start_commands
from ami.queues.diagnostics.finding import OF_BROKER
from ami.telemetry.snapshots import verdict
from ami.telemetry.snapshots.shape import FindingFigures, QueueFigures, Snapshot, WorkerFigures

#: So many of the tasks that run longest are listed.
MOST_TASKS = 12
#: So many of a queue's workers that take no tasks are listed.
MOST_WORKERS = 3


class OverviewPage(Page):
    """Everything on one page."""

    tab = "overview"
    title = "Queues"
    template = "console/overview.html"
    parts = {"overview": "console/parts/overview.html"}

    def figures(self, snapshot: Snapshot) -> dict[str, Any]:
        """Return the findings, the queues, beat, the tasks that run longest, and the jobs for who may see them."""
        tasks, findings = running_tasks(snapshot), self._findings(snapshot)
        return {
            "findings": [finding_row(finding) for finding in findings],
            "queues": [(queue, *_not_well(queue, snapshot), _start(queue)) for queue in snapshot.queues],
            "start_beat": start_commands.of_beat(),
            "beats": snapshot.beats,
            "jobs": snapshot.jobs if self._sees_jobs() else (),
            "sees_jobs": self._sees_jobs(),
            "tasks": tasks[:MOST_TASKS],
            "tasks_left": len(tasks) - MOST_TASKS,
            "running": sum(queue.running for queue in snapshot.queues),
            "waiting": quantities.total(queue.waiting for queue in snapshot.queues),
            "letters": quantities.total(queue.dead_letters for queue in snapshot.queues),
            "tells_delayed": any(queue.delayed is not None for queue in snapshot.queues),
            "verdict": verdict.judge(replace(snapshot, findings=findings)),
            "unseen": () if any(each.name in OF_BROKER for each in snapshot.findings) else snapshot.unseen,
        }

    def tables(self, snapshot: Snapshot) -> list[Table]:
        """Return the queues, the findings, the jobs and the tasks that run."""
        return [
            Table("queues", QUEUE_COLUMNS, [queue_row(queue) for queue in snapshot.queues]),
            Table("findings", FINDING_COLUMNS, [asdict(finding) for finding in self._findings(snapshot)]),
            Table("jobs", JOB_COLUMNS, [asdict(job) for job in snapshot.jobs], needs=VIEW_JOBS),
            Table("tasks", TASK_COLUMNS, running_tasks(snapshot)),
        ]

    def _sees_jobs(self) -> bool:
        return VIEW_JOBS in self.allowed

    def _findings(self, snapshot: Snapshot) -> tuple[FindingFigures, ...]:
        sees_jobs = self._sees_jobs() or LEVERS["enable"].needs in self.allowed
        return tuple(each for each in snapshot.findings if sees_jobs or not is_of_job(each))


def _not_well(queue: QueueFigures, snapshot: Snapshot) -> tuple[list[WorkerFigures], int]:
    """Return the workers of a queue that are parked, held or worse, and how many more there are than are listed."""
    own = [worker for worker in snapshot.workers if queue.queue in worker.queues]
    found = [worker for worker in own if worker.state != "running" or worker.parked]
    return found[:MOST_WORKERS], len(found) - MOST_WORKERS


def _start(queue: QueueFigures) -> str:
    rows = [row for row in settings.ANTENNA_TOPOLOGY.workloads if row.queue == queue.queue and not queue.workers]
    return start_commands.of_worker(rows[0]) if rows else ""


def queue_row(queue: QueueFigures) -> Row:
    """Return the figures of a queue as one flat row."""
    return {
        **asdict(queue),
        **{f"wait_{name}": value for name, value in asdict(queue.waits).items()},
        **{f"run_{name}": value for name, value in asdict(queue.runs).items()},
        **{name: queue.per_minute.get(name) for name in ("started", "ended", "failed")},
        "paused_by": queue.paused.by if queue.paused else None,
        "paused_why": queue.paused.why if queue.paused else None,
        "paused_until": queue.paused.until if queue.paused else None,
    }


def running_tasks(snapshot: Snapshot) -> list[dict[str, Any]]:
    """Return what runs on all workers, the longest first."""
    rows = [
        {**asdict(task), "node": worker.node, "queues": worker.queues}
        for worker in snapshot.workers
        for task in worker.running
    ]
    return sorted(rows, key=lambda row: -row["running_seconds"])


QUEUE_COLUMNS = (
    Column("queue", "Queue"),
    Column("service", "Service"),
    Column("promise", "Promise"),
    Column("promise_words", "In words"),
    Column("waiting", "Waiting", "number"),
    Column("running", "Running", "number"),
    Column("delayed", "Delayed", "number"),
    Column("consumers", "Consumers", "number"),
    Column("dead_letters", "Dead letters", "number"),
    Column("oldest_seconds", "Oldest", "seconds"),
    Column("wait_target_seconds", "Wait target", "seconds"),
    Column("wait_p50", "Wait p50", "seconds"),
    Column("wait_p95", "Wait p95", "seconds"),
    Column("wait_p99", "Wait p99", "seconds"),
    Column("run_p50", "Run p50", "seconds"),
    Column("run_p95", "Run p95", "seconds"),
    Column("started", "Started a minute", "number"),
    Column("ended", "Ended a minute", "number"),
    Column("failed", "Failed a minute", "number"),
    Column("workers", "Workers"),
    Column("paused_by", "Paused by"),
    Column("paused_why", "Why"),
    Column("paused_until", "Until", "time"),
)
FINDING_COLUMNS = (
    Column("level", "Level"),
    Column("name", "Name"),
    Column("sentence", "Finding"),
    Column("target", "Target"),
)
JOB_COLUMNS = (
    Column("pk", "Number", "number"),
    Column("name", "Job"),
    Column("kind", "Kind"),
    Column("project", "Project"),
    Column("status", "Status"),
    Column("stage", "Stage"),
    Column("done", "Done", "number"),
    Column("failed_images", "Failed images", "number"),
    Column("images_per_second", "Images per second", "number"),
    Column("left_seconds", "Left", "seconds"),
)
TASK_COLUMNS = (
    Column("task", "Task"),
    Column("id", "Id"),
    Column("node", "Worker"),
    Column("running_seconds", "Running", "seconds"),
    Column("progress", "Progress"),
    Column("kib", "KiB", "number"),
    Column("is_redelivered", "Delivered again"),
)
