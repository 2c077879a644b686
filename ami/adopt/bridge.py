"""Reads the old queues, publishes each message into the split, and acknowledges it when the split has it."""

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from enum import StrEnum

from ami.adopt.errors import StorageFailed
from ami.adopt.old_broker import OldBroker
from ami.adopt.old_message import OldMessage
from ami.adopt.plan import OF_THE_MESSAGE, Outcome, Plan, Planner
from ami.adopt.split import Split
from ami.adopt.tally import Tally
from ami.celery.task_message import describe

#: Messages of one queue in a turn: so often the consumers are looked for, and the other queues get their turn.
TURN = 100

#: How long a follower waits when all queues are empty.
POLL_SECONDS = 1.0


class End(StrEnum):
    """Why a run ended."""

    EMPTY = "empty"
    SILENT = "silent"
    STOPPED = "stopped"


class Bridge:
    """One run. ``progress`` is called after each message and each look; ``stop`` ends it between two messages."""

    def __init__(
        self,
        old: OldBroker,
        split: Split,
        planner: Planner,
        tally: Tally,
        progress: Callable[[], None],
        stop: threading.Event,
    ) -> None:
        self._old, self._split, self._planner, self._tally = old, split, planner, tally
        self._progress, self._stop = progress, stop

    def run(self, silent_seconds: float | None = None) -> End:
        """Move messages until all queues are empty, or, with ``silent_seconds``, have been empty for so long.

        Raises:
            AdoptionRefused: another consumer or another run has begun.
            OldBrokerFailed: the old broker failed.
            amqp.exceptions.AMQPError, TimeoutError: the split refused a message, or did not confirm it. In every case
                it stays where it was, and the next run goes on with it.
        """
        heard = time.monotonic()
        try:
            while not self._stop.is_set():
                if self._turn():
                    heard = time.monotonic()
                elif silent_seconds is None:
                    return End.EMPTY
                elif time.monotonic() - heard >= silent_seconds:
                    return End.SILENT
                else:
                    self._stop.wait(POLL_SECONDS)
                self._progress()
            return End.STOPPED
        finally:
            self._tally.save()

    def _turn(self) -> int:
        """Move up to ``TURN`` messages of each queue; return how many."""
        return sum(self._drain(queue.name) for queue in self._old.consumed() if queue.messages)

    def _drain(self, queue: str) -> int:
        for moved in range(TURN):
            message = None if self._stop.is_set() else self._old.get(queue)
            if message is None:
                return moved
            self._move(message)
            self._progress()
        return TURN

    def _move(self, message: OldMessage) -> None:
        plan = self._planner.plan(message)
        self._tally.begin(message, plan)
        plan = self._stored(message, plan)
        # Before the publish nothing is in doubt: the next attempt is the first.
        try:
            self._publish(message, plan)
            self._old.acknowledge(message)
        except BaseException:
            self._tally.failed(message, plan)
            raise
        self._tally.done(message, plan)

    def _stored(self, message: OldMessage, plan: Plan) -> Plan:
        """Return the plan with the arguments of what was stored, or that of a dead letter if it cannot be stored.

        Raises:
            StorageFailed: the storage did not take it.
        """
        call = plan.call
        if plan.outcome is not Outcome.RUNS or call is None or call.entry.store is None:
            return plan
        try:
            arguments = call.entry.store(call.arguments, message.task_id)
        except OF_THE_MESSAGE as error:
            return self._planner.buried(message, "its arguments cannot be stored", describe(error), call)
        except OSError as error:
            raise StorageFailed(f"The storage of results failed: {error}; the message stays where it was.") from error
        return replace(plan, call=replace(call, arguments=arguments))

    def _publish(self, message: OldMessage, plan: Plan) -> None:
        if plan.outcome is Outcome.RUNS:
            self._split.run(message, plan)
        elif plan.outcome is Outcome.BURIED:
            self._split.bury(message, plan)
