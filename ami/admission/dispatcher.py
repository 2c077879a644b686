"""The thread that sends calls, in the worker that holds a queue's lease, and writes what its worker saw of runs."""

import threading
import time
from collections import defaultdict
from typing import Any

from billiard import active_children
from celery.utils.log import get_logger
from django.db import Error
from django.db.models import Q
from django.db.models.functions import Now

from ami.admission import (
    deployment,
    groups,
    leases,
    outcomes,
    outlook,
    picks,
    run_publisher,
    runs,
    settlements,
    shares,
)
from ami.admission.deployment import Deployment
from ami.admission.lanes import Cursor
from ami.admission.models import Call, RecentKey, Run
from ami.admission.outlook import Outlook
from ami.admission.policies import Scope, policy_of
from ami.admission.windows import Window
from ami.celery import connection_names, outages, staged_calls
from ami.celery.thread_database import short_connection

logger = get_logger(__name__)

#: The process that dispatches is woken when a call is staged, and looks when one is due. Beside that it looks each
#: second, and less and less often when no call has come for a while. Every other process tries to get its leases.
LOOK_SECONDS, IDLE_SECONDS, TRY_SECONDS = 1.0, 10.0, 15.0
#: A process that is woken without a lease tries at once, but not more often than this.
LEAST_TRY_SECONDS = 2.0
#: While calls wait for room, a key or a permit it looks sooner, and from then on less and less often.
SOON_SECONDS, SLOWER = 0.02, 1.6
MOST_SOON_SECONDS, MOST_BLOCKED_SECONDS = 0.25, 5.0
#: Groups of calls are counted so often while calls wait for their time.
FULL_SECONDS = 1.0
#: What a look knows of workers and of what operators hold is at most so old.
DEPLOYMENT_SECONDS = 3.0
SWEEP_SECONDS, FORGET_SECONDS, FORGET_COUNTS_SECONDS = 5.0, 60.0, 3600.0
#: A worker's start without a living row for so long has ended, and its runs with it. Longer than a worker that starts
#: may need for its first beat; one that ends in order gives its runs back itself.
GONE_SECONDS = 120.0
END_SECONDS = 3.0
AGAIN_SECONDS = 1.0
UNDISPATCHED = "Calls not dispatched"


class Dispatcher:
    """Implements `ami.celery.worker_records.Duty`; one per process. Where no task has a policy it only asks, four times
    a minute, whether there are calls: those of another version.

    It does nothing in beat, which no broadcast wakes: without a worker no call would run.
    """

    def __init__(self) -> None:
        self._woken, self._stopped = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None
        self._asked_at = float("-inf")
        self._known_tasks = 0
        self._app: Any = None

    def turn(self, app: Any, name: str) -> None:  # noqa: ARG002
        """Start the thread; called every second by the sweep thread of a worker or beat."""
        if self._thread is None and connection_names.incarnation() and self._is_needed(app):
            self._look = Look(app, connection_names.incarnation())
            self._thread = threading.Thread(target=self._run, name="dispatcher", daemon=True)
            self._thread.start()

    def _is_needed(self, app: Any) -> bool:
        self._app = app
        if len(app.tasks) != self._known_tasks:
            self._known_tasks = len(app.tasks)
            if any(policy_of(task) is not None for task in app.tasks.values()):
                return True
        if staged_calls.has_notes():
            return True
        since = time.monotonic() - self._asked_at
        if since < LEAST_TRY_SECONDS or (since < TRY_SECONDS and not self._woken.is_set()):
            return False
        self._asked_at = time.monotonic()
        self._woken.clear()
        try:
            with short_connection():
                return Call.objects.exists()
        except Error as error:
            outages.complain(UNDISPATCHED, error)
            return False

    def wake(self) -> None:
        """Look now; called from any thread."""
        self._woken.set()

    #: Called in the worker's loop.
    calls_staged = wake

    def worker_gone(self, incarnation: str) -> None:
        """Give back what a dead worker ran and dispatched; a listener of `ami.queues.rescue.gone`."""
        runs.give_back(Q(worker=incarnation))
        leases.release(incarnation)
        self.wake()

    def end(self, name: str) -> None:  # noqa: ARG002
        """Let another process dispatch, and this worker's calls wait again: its pool has ended."""
        self._stopped.set()
        self._woken.set()
        if self._thread is not None:
            self._thread.join(END_SECONDS)
        elif not staged_calls.has_notes():
            return
        incarnation = connection_names.incarnation()
        with short_connection():
            leases.release(incarnation)
            settlements.write(self._app)
            if incarnation and not active_children():
                runs.give_back(Q(worker=incarnation))

    def _run(self) -> None:
        pause, looked_at = 0.0, float("-inf")
        while not self._stopped.is_set():
            is_woken = self._woken.wait(pause)
            self._stopped.wait(max(0.0, looked_at + SOON_SECONDS - time.monotonic()))  # Whatever wakes it is one look.
            looked_at = time.monotonic()
            self._woken.clear()
            if self._stopped.is_set():
                return
            try:
                pause = self._look.turn(is_woken)
            except Error as error:
                outages.complain(UNDISPATCHED, error)
                pause = AGAIN_SECONDS
            except Exception:
                logger.exception("Dispatch failed; trying again")
                pause = AGAIN_SECONDS


class Look:
    """What the thread does at each look, and what it remembers in between."""

    def __init__(self, app: Any, holder: str) -> None:
        self.app, self.holder = app, holder
        self._policies = picks.staged_tasks(app)
        self._groups = any(each.group_by for each in self._policies.values())
        self._forgets = any(each.unique and each.unique.until == Scope.RECENTLY for each in self._policies.values())
        self._held: set[str] = set()
        self._deployment = Deployment()
        self._tried_at = self._known_at = self._sweep_at = self._forgot_at = self._sent_at = float("-inf")
        self._full_at = self._counts_forgot_at = float("-inf")
        self._has_later = self._is_busy = False
        self._pause = SOON_SECONDS
        self._missing_since: dict[str, float] = {}
        self._windows: defaultdict[str, Window] = defaultdict(Window)
        self._cursors: defaultdict[str, Cursor] = defaultdict(Cursor)
        self._confirmed: list[str] = []

    def turn(self, is_woken: bool) -> float:
        """Do what is due; return the seconds until the next look. Two statements where there is nothing to do."""
        pause = self._turn(time.monotonic(), is_woken)
        return min(pause, MOST_SOON_SECONDS) if staged_calls.has_notes() else pause

    def _turn(self, now: float, is_woken: bool) -> float:
        with short_connection(keep=self._is_busy):
            settlements.write(self.app)
            if not self._holds_leases(now, is_woken):
                return TRY_SECONDS
            seen = self._see(now)
            due = sorted(set(seen.due) - self._deployment.paused_queues)
            picked = {queue: self._pick(queue) for queue in due if self._has_room(queue, seen, now)}
        self._sweep(now, seen)
        if due:
            return self._send(picked)
        self._is_busy = False
        self._pause = SOON_SECONDS
        quiet = max(LOOK_SECONDS, min((now - self._sent_at) / 10, IDLE_SECONDS))
        return max(SOON_SECONDS, min(seen.seconds or quiet, quiet))

    def _holds_leases(self, now: float, is_woken: bool) -> bool:
        patience = IDLE_SECONDS if self._held else LEAST_TRY_SECONDS if is_woken else TRY_SECONDS
        if now - self._tried_at >= patience - 0.5:
            self._tried_at = now
            self._held = leases.acquire(self.app.topology.queues, self.holder)
        return bool(self._held)

    def _see(self, now: float) -> Outlook:
        self._confirm()
        if self._groups and self._has_later and now - self._full_at >= FULL_SECONDS:
            self._full_at = now
            groups.send_full(sorted(self._held), self._policies)
        seen = outlook.read(self._held)
        self._has_later = seen.seconds is not None
        if (seen.due or seen.unseen or seen.runs) and now - self._known_at >= DEPLOYMENT_SECONDS:
            self._known_at = now
            self._deployment = deployment.read()
        return seen

    def _has_room(self, queue: str, seen: Outlook, now: float) -> bool:
        return self._windows[queue].look(seen.runs.get(queue, 0), self._places(queue), now)

    def _pick(self, queue: str) -> list[picks.Outgoing]:
        now = self._deployment
        allowed = {
            name: now.limited(name, each) for name, each in self._policies.items() if name not in now.disabled_tasks
        }
        window = self._windows[queue]
        size = window.size(self._places(queue))
        try:
            picked = picks.pick(allowed, queue, self.holder, size, now.weights, now.disabled_jobs, self._cursors[queue])
        except picks.LeaseLost:
            self._held.discard(queue)
            return []
        window.sent(len(picked))
        return picked

    def _send(self, picked: dict[str, list[picks.Outgoing]]) -> float:
        """Publish what was picked, and pick on where that was not all; return when to look again.

        While some calls have to wait, that is soon, and later and later.
        """
        for queue, outgoing in picked.items():
            while outgoing:
                self._publish(outgoing)
                if len(outgoing) < picks.BATCH or time.monotonic() - self._known_at > DEPLOYMENT_SECONDS:
                    break
                with short_connection(keep=True):
                    self._confirm()
                    outgoing = self._pick(queue)
        self._is_busy = any(picked.values())
        if self._is_busy:
            self._sent_at, self._pause = time.monotonic(), SOON_SECONDS
            return SOON_SECONDS
        if any(self._cursors[queue].after for queue in picked):
            return SOON_SECONDS  # Not all lanes were seen.
        most = max(MOST_SOON_SECONDS, min((time.monotonic() - self._sent_at) / 10, MOST_BLOCKED_SECONDS))
        self._pause = min(self._pause * SLOWER, most)
        return self._pause

    def _publish(self, outgoing: list[picks.Outgoing]) -> None:
        if not outages.is_away(outages.BROKER):  # It tries again and again.
            queue = outgoing[0].call.queue
            logger.info("👑 Master fetched %d jobs from database", len(outgoing), extra={"queue": queue})
        known = set(run_publisher.publish(self.app, outgoing))
        self._confirmed += known
        for each in outgoing:
            if each.run in known:
                fields = {"task_id": each.call.task_id, "queue": each.call.queue}
                logger.info("📥 Added job '%s' to queue", each.call.task, extra=fields)

    def _confirm(self) -> None:
        """Note which messages the broker has, in the next use of the database: well before they were sent again."""
        if self._confirmed:
            run_publisher.confirmed(self._confirmed)
            self._confirmed = []

    def _places(self, queue: str) -> int:
        """Return how many calls of a queue its workers run at once."""
        return int(self._deployment.places.get(queue) or self.app.topology.workload(queue).concurrency)

    def _sweep(self, now: float, seen: Outlook) -> None:
        """Send again what has not begun, and give back what dead workers ran."""
        for queue in seen.unseen:
            with short_connection():
                unseen = run_publisher.unseen(queue)
            if unseen:
                self._publish(unseen)
        if seen.runs and now - self._sweep_at >= SWEEP_SECONDS:
            self._sweep_at = now
            with short_connection():
                self._give_back_of_ended(now)
        if self._forgets and now - self._forgot_at >= FORGET_SECONDS:
            self._forgot_at = now
            with short_connection():
                RecentKey.objects.filter(until__lte=Now()).delete()
        if now - self._counts_forgot_at >= FORGET_COUNTS_SECONDS:
            self._counts_forgot_at = now
            with short_connection():
                outcomes.forget()
                shares.forget()

    def _give_back_of_ended(self, now: float) -> None:
        """Give back the runs of worker starts that have had no row for a while: they have ended in order."""
        rows = self._deployment.workers
        if rows is None:
            return
        active = Run.objects.filter(queue__in=self._held, state=Run.State.RUNNING).exclude(worker="")
        missing = set(active.values_list("worker", flat=True).distinct()) - rows
        self._missing_since = {worker: self._missing_since.get(worker, now) for worker in missing}
        for worker, since in self._missing_since.items():
            if now - since >= GONE_SECONDS and (count := runs.give_back(Q(worker=worker))):
                logger.warning("Runs of an ended worker given back: %d", count, extra={"worker": worker})


#: This process's, which `config` connects.
DUTY = Dispatcher()
