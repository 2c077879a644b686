"""Reads the old queues, publishes each message into the split, and acknowledges it when the split has it."""

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from enum import StrEnum
from typing import Any

from ami.queues.adoption.old_broker import OldBroker
from ami.queues.adoption.old_message import OldMessage
from ami.queues.adoption.plan import Call, Outcome, Plan, Planner
from ami.queues.adoption.split import Split
from ami.queues.adoption.tally import Tally

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
        stored = Stored(plan)
        try:
            self._publish(message, stored.plan)
            stored.happened = True
            self._old.acknowledge(message)
        except BaseException:
            # Before the publish nothing is in doubt: the next attempt is the first.
            if stored.happened:
                self._tally.failed(message, plan)
            raise
        self._tally.done(message, plan)

    def _publish(self, message: OldMessage, plan: Plan) -> None:
        if plan.outcome is Outcome.RUNS:
            self._split.run(message, plan)
        elif plan.outcome is Outcome.BURIED:
            self._split.bury(message, plan)


class Stored:
    """A plan that notes when what precedes its publish has ``happened``; at once where nothing is stored."""

    def __init__(self, plan: Plan) -> None:
        self.plan, self.happened = plan, True
        call = plan.call
        if plan.outcome is Outcome.RUNS and call is not None and call.entry.store is not None:
            self.happened = False
            self.plan = replace(plan, call=self._noting(call, call.entry.store))

    def _noting(self, call: Call, store: Callable[[dict[str, Any], str], dict[str, Any]]) -> Call:
        def noting(arguments: dict[str, Any], task_id: str) -> dict[str, Any]:
            found = store(arguments, task_id)
            self.happened = True
            return found

        return replace(call, entry=replace(call.entry, store=noting))
