"""Every metric of `/metrics`: name, kind, labels and what it says. What celery-exporter has, has its name here.

https://github.com/danihodovic/celery-exporter#metrics
"""

from dataclasses import dataclass
from typing import Literal

Kind = Literal["gauge", "counter", "histogram"]

#: Labels, as celery-exporter calls them: a task, a queue, a worker's node.
TASK, QUEUE, NODE = "name", "queue_name", "hostname"
#: In place of a task that is not registered, or a queue that is not in the table.
OTHER = "other"
#: The job of the scrape configuration, which the alert rules name.
SCRAPE_JOB = "antenna"


@dataclass(frozen=True)
class Metric:
    """One metric. ``name`` is its family's: a counter's series ends in ``_total``, a histogram has three."""

    name: str
    kind: Kind
    text: str
    labels: tuple[str, ...] = ()

    @property
    def series(self) -> tuple[str, ...]:
        """Return the names of its series as Prometheus stores them."""
        if self.kind == "counter":
            return (f"{self.name}_total",)
        if self.kind == "histogram":
            return tuple(f"{self.name}_{each}" for each in ("bucket", "sum", "count"))
        return (self.name,)

    def __str__(self) -> str:
        return self.series[0]

    @property
    def count(self) -> str:
        """Return the name of a histogram's series that counts."""
        return f"{self.name}_count"


def _of_queue(name: str, text: str) -> Metric:
    return Metric(name, "gauge", text, (QUEUE,))


def _of_worker(name: str, text: str) -> Metric:
    return Metric(name, "gauge", text, (NODE, "service"))


def _of_task(name: str, text: str, kind: Kind = "counter") -> Metric:
    return Metric(name, kind, text, (TASK, QUEUE))


QUEUE_LENGTH = _of_queue("celery_queue_length", "Messages that wait in a queue.")
CONSUMERS = _of_queue("celery_active_consumer_count", "Consumers of a queue, as the broker says.")
QUEUE_WORKERS = _of_queue("celery_active_worker_count", "Live workers of a queue.")
QUEUE_PROCESSES = _of_queue("celery_active_process_count", "Processes of a queue's live workers.")
RUNNING = _of_queue("antenna_queue_running", "Tasks of a queue that have run for two seconds or more.")
OLDEST = _of_queue("antenna_queue_oldest_seconds", "Age of the oldest waiting message.")
OLDEST_IS_BOUND = _of_queue("antenna_queue_oldest_is_bound", "1 where the oldest message is at most that old.")
WAIT_TARGET = _of_queue("antenna_queue_wait_target_seconds", "Seconds within which a task of the queue should start.")
PROMISE = _of_queue("antenna_queue_promise_kept", "1 if the queue keeps its promise, 0 if not; absent while unknown.")
PAUSED = _of_queue("antenna_queue_paused", "1 if an operator has paused the queue.")
LETTERS = _of_queue("antenna_queue_dead_letters", "Dead letters of the queue.")
DELAYED = Metric("antenna_delayed_messages", "gauge", "Messages of all queues that wait for their time.")

STARTED = _of_task("celery_task_started", "Tasks that a worker has begun.")
SUCCEEDED = _of_task("celery_task_succeeded", "Tasks that succeeded.")
FAILED = _of_task("celery_task_failed", "Tasks that failed for good.")
RETRIED = _of_task("celery_task_retried", "Runs that ended in a retry.")
RUNTIME = _of_task("celery_task_runtime", "Seconds that tasks ran.", "histogram")
WAIT = _of_task("antenna_task_wait_seconds", "Seconds from when a task was due to its start.", "histogram")

WORKER_UP = Metric("celery_worker_up", "gauge", "1 if the worker lives, by its last report.", (NODE,))
WORKER_ACTIVE = Metric(
    "celery_worker_tasks_active", "gauge", "Tasks of the worker that have run for two seconds or more.", (NODE,)
)
WORKER_INFO = Metric("antenna_worker_info", "gauge", "Always 1.", (NODE, "service", "host", "version", "state"))
WORKER_PARKED = _of_worker("antenna_worker_parked", "1 if an operator has parked or stopped the worker.")
WORKER_HELD = _of_worker("antenna_worker_held", "1 while the worker takes no tasks for want of memory.")
WORKER_MEMORY = _of_worker("antenna_worker_memory_used_bytes", "Memory that the worker's limit counts.")
WORKER_LIMIT = _of_worker("antenna_worker_memory_limit_bytes", "That limit.")
WORKER_HOLDS_AT = _of_worker("antenna_worker_memory_hold_ratio", "Share of the limit at which the worker holds.")
WORKER_RELEASES_AT = _of_worker("antenna_worker_memory_release_ratio", "Share at which it takes tasks again.")
WORKER_CHILDREN = _of_worker("antenna_worker_children", "Processes of the worker.")

BEATS_UP = Metric("antenna_beats_up", "gauge", "Beats that have reported within a minute; 1 or more is right.")
BEAT_TICK = Metric("antenna_beat_last_tick_timestamp_seconds", "gauge", "When a scheduled task was last published.")
JOBS = Metric("antenna_jobs", "gauge", "Jobs that have begun or wait.", ("kind", "status"))
FINDINGS = Metric("antenna_findings", "gauge", "Findings of `queues check --live`.", ("finding", "level"))
UNSEEN = Metric("antenna_snapshot_unseen", "gauge", "1 if the broker could not be read: its figures are absent.")
TAKEN = Metric("antenna_snapshot_timestamp_seconds", "gauge", "When these figures were read.")
BUILD = Metric("antenna_build_info", "gauge", "Always 1.", ("version",))

#: All of them, in the order of docs/monitoring.md.
METRICS: tuple[Metric, ...] = tuple(each for each in tuple(globals().values()) if isinstance(each, Metric))
