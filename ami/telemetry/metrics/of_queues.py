"""What waits and runs of each queue, and what is known of all of them together."""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from prometheus_client.metrics_core import Metric as Family

from ami.telemetry.metrics.families import gauge, single
from ami.telemetry.metrics.of_workers import is_up
from ami.telemetry.snapshots.promises import BROKEN, KEPT
from ami.telemetry.snapshots.shape import QueueFigures, Snapshot
from ami.topology.monitoring import metrics
from ami.topology.monitoring.metrics import Metric

#: A beat that has not reported for so long is gone.
BEAT_SECONDS = 60.0
_PROMISES = {KEPT: 1, BROKEN: 0}

FIGURES: tuple[tuple[Metric, Callable[[QueueFigures], Any]], ...] = (
    (metrics.QUEUE_LENGTH, lambda queue: queue.waiting),
    (metrics.CONSUMERS, lambda queue: queue.consumers),
    (metrics.RUNNING, lambda queue: queue.running),
    (metrics.OLDEST, lambda queue: queue.oldest_seconds),
    (metrics.OLDEST_IS_BOUND, lambda queue: None if queue.oldest_seconds is None else queue.oldest_is_bound),
    (metrics.WAIT_TARGET, lambda queue: queue.wait_target_seconds),
    (metrics.PROMISE, lambda queue: _PROMISES.get(queue.promise)),
    (metrics.PAUSED, lambda queue: queue.paused is not None),
    (metrics.LETTERS, lambda queue: queue.dead_letters),
)


def families(snapshot: Snapshot) -> Iterator[Family]:
    for metric, figure in FIGURES:
        yield gauge(metric, [((queue.queue,), figure(queue)) for queue in snapshot.queues])
    live = {worker.node: worker for worker in snapshot.workers if is_up(worker)}
    own = {queue.queue: [live[node] for node in queue.workers if node in live] for queue in snapshot.queues}
    yield gauge(metrics.QUEUE_WORKERS, [((name,), len(workers)) for name, workers in own.items()])
    processes = [((name,), sum(each.children for each in workers)) for name, workers in own.items()]
    yield gauge(metrics.QUEUE_PROCESSES, processes)
    yield single(metrics.DELAYED, snapshot.delayed)
    yield from _of_all(snapshot)


def _of_all(snapshot: Snapshot) -> Iterator[Family]:
    yield single(metrics.BEATS_UP, sum(beat.seen_seconds < BEAT_SECONDS for beat in snapshot.beats))
    ticks = [beat.last_tick_at for beat in snapshot.beats if beat.last_tick_at is not None]
    yield single(metrics.BEAT_TICK, max(ticks, default=None))
    found = Counter((each.name, each.level) for each in snapshot.findings)
    yield gauge(metrics.FINDINGS, found.items())
    yield single(metrics.UNSEEN, bool(snapshot.unseen))
    yield single(metrics.TAKEN, snapshot.taken_at)
