"""Replays of many letters: at a rate, with progress, stopped and resumed; killed, another process goes on.

`begin` writes a row, and `work` publishes: in the command that asked, else in whichever process collects letters
(`ami.queues.letters.replay_duty`).
"""

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from django.db import Error, transaction
from django.db.models import F, Q, QuerySet
from django.db.models.functions import Now
from kombu import Connection

from ami.celery import leases
from ami.celery.message_copy import confirming_channel
from ami.celery.process_name import name_of_this_process
from ami.queues import dead_letters, wishes
from ami.queues.letters import rows
from ami.queues.letters.publishing import DEFAULT_EXCHANGE, publish_again
from ami.queues.letters.selection import Selection, refuse_unknown_queue
from ami.queues.models import Letter, LetterEvent, Replay
from ami.queues.refusals import Refused
from ami.queues.targets import queue_target
from ami.queues.wishes import Operator, refuse_wrong
from ami.topology.topology import Topology

#: So many letters are marked at once; a process that is killed leaves at most so many that are published twice.
BATCH = 20
#: Who publishes renews its hold with each batch; when it is killed, another goes on after this time. The slowest rate
#: publishes a letter in less.
HOLD_SECONDS, RENEW_SECONDS = 20.0, 5.0
LEAST_PER_SECOND, MOST_PER_SECOND = 0.1, 10_000.0


def begin(
    topology: Topology,
    selection: Selection,
    operator: Operator,
    *,
    why: str = "",
    to: str = "",
    rate: float | None = None,
    limit: int | None = None,
) -> Replay:
    """Write down a replay of the dead letters that fit now; `work` publishes them.

    Raises:
        Refused: a queue is unknown, ``rate`` is no rate, ``why`` is too long, or no letter fits.
    """
    refuse_wrong(why, None)
    refuse_unknown_queue(topology, selection.queue)
    if to:
        queue_target(topology, to)
    if rate is not None and not LEAST_PER_SECOND <= rate <= MOST_PER_SECOND:
        raise Refused(f"{rate:g} is no rate; give letters per second from {LEAST_PER_SECOND:g} to {MOST_PER_SECOND:g}.")
    reclaim()
    keys = selection.rows().values_list("pk", flat=True)
    most = (keys[limit - 1 : limit].first() if limit else None) or keys.reverse().first()
    if most is None:
        raise Refused(f"No dead letter fits ({selection}); nothing was done.")
    with transaction.atomic():
        replay = Replay.objects.create(
            selection=selection.as_dict(),
            destination=to,
            rate=rate,
            total=keys.filter(pk__lte=most).count(),
            most_pk=most,
            by=operator.name[:255],
            why=why,
            began_at=Now(),
            until=Now(),
        )
        which = f"replay {replay.pk} of {replay.total} letters: {selection}"
        operator.record("replay", which=which, why=why)
    replay.refresh_from_db()
    return replay


def stop(key: int, operator: Operator, *, why: str = "") -> Replay:
    """Stop a replay; whoever publishes ends within a batch. `resume` goes on from there.

    Raises:
        Refused: there is no such replay, or it does not run.
    """
    return _change(key, "stop", Replay.State.RUNNING, Replay.State.STOPPED, operator, why)


def resume(key: int, operator: Operator, *, why: str = "") -> Replay:
    """Let a stopped replay go on.

    Raises:
        Refused: there is no such replay, or it is not stopped.
    """
    return _change(key, "resume", Replay.State.STOPPED, Replay.State.RUNNING, operator, why)


def in_background(replay: Replay) -> Replay:
    """Tell the process that collects letters to publish a replay now; without this it does within a minute."""
    wishes.wake_workers()
    return replay


def waiting() -> "QuerySet[Replay]":
    """Return the replays that run and that no process publishes now, and stopped ones whose process was killed."""
    is_running, is_left = Q(state=Replay.State.RUNNING), Q(state=Replay.State.STOPPED) & ~Q(holder="")
    return Replay.objects.filter(is_running | is_left, until__lt=Now())


def work(
    topology: Topology,
    connection: Connection,
    key: int,
    progress: Callable[[Replay], None] = lambda _: None,
    is_stopped: Callable[[], bool] = lambda: False,
    database: Callable[[], AbstractContextManager[Any]] = nullcontext,
) -> Replay:
    """Publish a replay's letters until it has ended, is stopped, or ``is_stopped``; return how far it is.

    Batches are marked before they are published, since a task may end before the next statement; after a kill the
    batch that was marked and not counted is published again. Nothing is done while another process publishes the
    replay. A letter that the broker or the storage refuses stops it, with the reason; it stays dead. ``database`` is
    entered for each use of the database.
    """
    work = _Work(topology, key)
    with database():
        replay, batch = work.take([])
    if not batch:
        return replay
    began, count, published = time.monotonic(), 0, list[Letter]()
    try:
        with confirming_channel(connection) as channel:
            while batch and not is_stopped():
                for row in batch:
                    work.renew(database)
                    publish_again(channel, row, work.place)
                    published.append(row)
                count += len(batch)
                with database():
                    replay, batch = work.take(published)
                published = []
                progress(replay)
                _keep_rate(replay.rate, began, count, is_stopped)
    except _Lost:
        return replay
    except Error:
        raise
    except Exception as error:  # The broker's, the storage's, or of a row that no message can be made of.
        with database():
            work.refused(error)
    with database():
        return work.leave(batch[len(published) :])


def finish(
    topology: Topology,
    connection: Connection,
    replay: Replay,
    progress: Callable[[Replay], None] = lambda _: None,
    is_stopped: Callable[[], bool] = lambda: False,
) -> Replay:
    """Publish a replay's letters, or watch another process that does, until it does not run any more."""
    while True:
        replay = work(topology, connection, replay.pk, progress, is_stopped)
        progress(replay)
        if replay.state != Replay.State.RUNNING or is_stopped():
            return replay
        time.sleep(0.5)


class _Lost(Exception):
    """Another process publishes the replay: this one was silent for too long."""


class _Work:
    """One process's hold of one replay; its methods are each a few statements."""

    def __init__(self, topology: Topology, key: int) -> None:
        self._topology, self._key, self._destination = topology, key, ""
        self._holder = f"{name_of_this_process()}:{time.monotonic_ns()}"
        self._mine = Replay.objects.filter(pk=key, holder=self._holder)
        self._renewed_at = time.monotonic()

    def take(self, published: Sequence[Letter]) -> tuple[Replay, list[Letter]]:
        """Count what was published, renew the hold, and return what comes next, marked; nothing at the end."""
        self._renewed_at = time.monotonic()
        with transaction.atomic():
            if published:
                values = {"done": F("done") + len(published), "last_pk": published[-1].pk}
                held = leases.renew(self._mine, self._holder, HOLD_SECONDS, **values)
            else:
                running = Replay.objects.filter(pk=self._key, state=Replay.State.RUNNING)
                held = leases.take(running, self._holder, HOLD_SECONDS)
            replay = Replay.objects.get(pk=self._key)
            self._destination = replay.destination
            if not held or replay.state != Replay.State.RUNNING:
                return replay, []
            if not (batch := _next(replay)):
                # Of a batch whose process was killed, what ended before it was published again was not counted.
                done = max(replay.done, Letter.objects.filter(replay=replay).count())
                self._mine.update(state=Replay.State.ENDED, ended_at=Now(), done=done)
            _mark(replay, batch)
        return replay, batch

    def renew(self, database: Callable[[], AbstractContextManager[Any]]) -> None:
        """Renew the hold if a batch takes long.

        Raises:
            _Lost: it is another process's.
        """
        if time.monotonic() - self._renewed_at < RENEW_SECONDS:
            return
        with database():
            if not leases.renew(self._mine, self._holder, HOLD_SECONDS):
                raise _Lost
        self._renewed_at = time.monotonic()

    def place(self, message: Any) -> tuple[str, str]:
        """Return the exchange and routing key for a letter."""
        if self._destination:
            return DEFAULT_EXCHANGE, self._destination
        return dead_letters.destination(self._topology, message)

    def refused(self, error: BaseException) -> None:
        """Stop the replay, with the reason."""
        why = str(error).partition("\n")[0] or type(error).__name__
        self._mine.filter(state=Replay.State.RUNNING).update(state=Replay.State.STOPPED, error=why[:500])

    def leave(self, unpublished: Sequence[Letter]) -> Replay:
        """Let others go on; what was marked and not published is dead again."""
        with transaction.atomic():
            if leases.release(self._mine, self._holder):
                _give_back(self._key, [row.pk for row in unpublished])
        return Replay.objects.get(pk=self._key)


def _give_back(key: int, letters: Sequence[int]) -> None:
    """Make letters dead again that were marked by a replay, and not published."""
    mine = Letter.objects.filter(replay=key, state=Letter.State.REPLAYED)
    for letter in letters:
        if mine.filter(pk=letter).update(state=Letter.State.DEAD, replay=None):
            marked = LetterEvent.objects.filter(letter=letter, what=LetterEvent.What.REPLAYED)
            marked.order_by("-pk")[0].delete()


def reclaim() -> None:
    """Make letters dead again that a process had marked, which was killed, in a replay that was then stopped."""
    for replay in waiting().filter(state=Replay.State.STOPPED):
        with transaction.atomic():
            if leases.release(Replay.objects.filter(pk=replay.pk), replay.holder):
                left = Letter.objects.filter(replay=replay, state=Letter.State.REPLAYED, pk__gt=replay.last_pk)
                _give_back(replay.pk, list(left.values_list("pk", flat=True)))


def _next(replay: Replay) -> list[Letter]:
    """Return the letters that come next: dead ones, and those of a batch whose process was killed.

    Of those that died again in this replay none.
    """
    size = BATCH if replay.rate is None else max(1, min(BATCH, int(replay.rate)))
    # Locked until they are marked: another replay may reach the same letters.
    left = Letter.objects.select_for_update().filter(pk__gt=replay.last_pk, pk__lte=replay.most_pk)
    half_done = left.filter(replay=replay, state=Letter.State.REPLAYED).order_by("pk")
    dead = left.exclude(replay=replay).order_by("pk") & Selection.of(replay.selection).rows()
    return sorted([*half_done[:size], *dead[:size]], key=lambda row: row.pk)[:size]


def _mark(replay: Replay, batch: Sequence[Letter]) -> None:
    """Mark letters as published again, those of a killed process's batch apart."""
    keys = [row.pk for row in batch if row.state == Letter.State.DEAD]
    dead = Letter.objects.filter(pk__in=keys, state=Letter.State.DEAD)
    dead.update(state=Letter.State.REPLAYED, replay=replay, replayed_at=Now())
    rows.record(keys, LetterEvent.What.REPLAYED, by=replay.by, why=replay.why, detail=replay.destination)


def _keep_rate(rate: float | None, began: float, published: int, is_stopped: Callable[[], bool]) -> None:
    while rate is not None and not is_stopped() and (rest := began + published / rate - time.monotonic()) > 0:
        time.sleep(min(rest, 0.5))


def as_dict(replay: Replay) -> dict[str, Any]:
    """Return a replay as JSON takes it."""
    names = ("id", "state", "done", "total", "selection", "rate", "destination", "by", "why", "error")
    ended = replay.ended_at.isoformat() if replay.ended_at else None
    return {name: getattr(replay, name) for name in names} | {
        "began_at": replay.began_at.isoformat(),
        "ended_at": ended,
    }


def _change(key: int, verb: str, before: str, after: str, operator: Operator, why: str) -> Replay:
    refuse_wrong(why, None)
    with transaction.atomic():
        if not Replay.objects.filter(pk=key, state=before).update(state=after, error=""):
            found = Replay.objects.filter(pk=key).first()
            raise Refused(f"Replay {key} is {found.state}, not {before}." if found else f"There is no replay {key}.")
        operator.record(verb, which=f"replay {key}", why=why)
    return Replay.objects.get(pk=key)
