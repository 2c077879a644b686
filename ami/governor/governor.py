"""Holds and releases one worker's consumption: reads the probes, asks the policy, and does what it says."""

import os
import time
from collections.abc import Callable
from typing import Any

from celery.utils.log import get_logger
from celery.worker import state

from ami.governor import policy, reclaim
from ami.governor.child_process import told
from ami.governor.crash_log import Board
from ami.governor.growth import Growth
from ami.governor.metrics import shown_all
from ami.governor.poison_tasks import Trial
from ami.governor.pool_adapters import Crew
from ami.governor.probes.machine import Machine
from ami.governor.reservation import Promise, Sizes, admissible
from ami.governor.sample import Reading
from ami.governor.settings import GovernorSettings
from ami.governor.slot_consumer import SlotConsumer

logger = get_logger(__name__)

#: How often to look again whether what was handed over has begun, before a hold is declared.
SETTLE_SECONDS = 0.02

#: How a worker ends that holds more memory than its tasks: start me again.
EXIT_CODE = os.EX_TEMPFAIL


class Governor:
    """One worker's. Lives as long as its process; a consumer is attached to it after each connect.

    ``paused`` is the operator's pause, asked at each look. Everything runs on the thread of the worker's loop.
    """

    def __init__(
        self,
        settings: GovernorSettings,
        crew: Crew,
        board: Board | None,
        paused: Callable[[], bool] = lambda: False,
        machine: Machine | None = None,
    ) -> None:
        self.settings, self.crew, self.board, self._paused = settings, crew, board, paused
        self._machine = machine or Machine()
        self.started_at = time.monotonic()
        self.gate = policy.Gate()
        self.reading = Reading()
        self.counts = {"looks": 0, "holds": 0, "ended": 0, "interrupted": 0, "buried": 0, "admitted": 0}
        self.held_seconds = 0.0
        self.redelivered = 0
        self.sizes = Sizes(board.folder / "sizes.json" if board else None)
        self.sizes.load()
        self.trial = Trial(board, self.acts)
        self._consumer: SlotConsumer | None = None
        self._event: Callable[..., Any] = lambda *_, **__: None
        self._looked_at = 0.0
        self._situation: policy.Situation | None = None
        self._children: list[reclaim.Child] | None = None
        self._faults: tuple[str, ...] = ()
        self._growth = Growth()
        self._admitted = 0
        self._admission = ""
        self._pending: str | None = None
        self._next_seconds = settings.memory_check_interval
        crew.changed = self.changed

    @property
    def acts(self) -> bool:
        """Whether it does what it decides, or only says so."""
        return self.settings.memory_governor == "on"

    # --- consuming ----------------------------------------------------------------------------------------------

    def attach(self, consumer: SlotConsumer, call_soon: Callable[..., Any], event: Callable[..., Any]) -> None:
        """Take over a new connection's consumer before its first consume; what was held stays held."""
        self._consumer, self._event = consumer, event
        self.trial.reconnected()
        self._look_at_machine()

        def settled(delivery_tag: Any) -> None:
            if consumer is self._consumer:  # Not what a lost connection had delivered.
                self._on_settled(delivery_tag)

        consumer.manage(self.crew.multiplier, call_soon, settled, self._refuses)
        consumer.slots = self.slots()

    def detach(self) -> None:
        """The connection is gone, and its messages with it."""
        self._consumer = None

    def changed(self) -> None:
        """The pool has more or fewer places than before."""
        self._recount()
        if self._consumer is not None:
            self._consumer.adjust_soon()

    def slots(self) -> int:
        """How many messages this worker may have now."""
        if not self.acts:
            return self.crew.places
        if self.gate.held and not self.gate.admit_one:
            return 0
        places = self.crew.places
        if self.gate.admit_one or self.trial.open:
            # Suspects run one at a time: whoever takes the worker along a second time is known.
            places = min(places, 1)
        if self.settings.memory_reservation == "on":
            places = min(places, self._admitted)
        return places

    def _on_settled(self, delivery_tag: Any) -> None:
        """A message is about to be given back, and the broker to send the next one."""
        if self.trial.ended(delivery_tag):
            self.changed()
        if self.crew.rests:
            self.crew.settled()
            self._recount()
        if self.crew.looks_between_tasks and time.monotonic() - self._looked_at >= self._next_seconds:
            self._look_between_tasks()
        if self.gate.held and self.acts and self._consumer is not None:
            self._consumer.slots = 0  # Also after the one task that was let through.

    def _recount(self) -> None:
        if self._consumer is not None:
            self._consumer.slots = self.slots()

    def _look_between_tasks(self) -> None:
        """Look before a solo worker's next task; whatever is wrong with that must not keep this one's from ending."""
        try:
            self.observe()
        except Exception:
            logger.exception("The governor could not look; it tries again.")

    def _refuses(self, message: Any) -> bool:
        """Count what was delivered before, and bury what has killed this worker twice."""
        if message.delivery_info.get("redelivered"):
            self.redelivered += 1
        buried = self._consumer is not None and self.trial.buries(message, self._consumer.give_up)
        self.counts["buried"] += buried
        return buried

    # --- looking ------------------------------------------------------------------------------------------------

    def look(self) -> float:
        """Observe, adjust the intake, and act; return in how many seconds to look again."""
        seconds = self.observe()
        self.adjust()
        self.act()
        return seconds

    def adjust(self) -> None:
        """Take as many messages as was decided. Raises what the broker's connection raises."""
        if self._consumer is not None:
            self._consumer.adjust()

    def act(self) -> None:
        """Make memory come back, and say what has changed."""
        self._climb_ladder()  # With the intake closed: a child that is idle now stays so.
        self._settle()

    def observe(self) -> float:
        """Read the machine and decide, without a word to the broker; return in how many seconds to look again."""
        before, before_at = self.reading, self._looked_at
        self.crew.measure_baseline()
        self._look_at_machine()
        self._watch_children()
        if time.monotonic() - self.started_at >= self.settings.memory_max_hold_seconds:
            self.trial.lapse()
        self._learn()
        self._reserve()
        self._recount()
        elapsed = self._looked_at - before_at if before_at else self.settings.memory_check_interval
        seconds = policy.next_look_seconds(self.settings, before if before_at else None, self.reading, elapsed)
        self._next_seconds = min(
            seconds, self._growth.next_look_seconds(self.crew.hard_kib, self.settings.memory_check_interval)
        )
        return self._next_seconds

    def _look_at_machine(self) -> None:
        now = time.monotonic()
        self.counts["looks"] += 1
        if self.gate.held:
            self.held_seconds += now - max(self._looked_at, self.gate.since)
        self._looked_at = now
        self.reading = self._machine.read()
        self._report_faults()
        before = self.gate
        self._situation = self._measured(now)
        self.gate = policy.decide(self.settings, before, self._situation)
        self.counts["admitted"] += self.gate.admit_one and not before.admit_one
        self.counts["holds"] += self.gate.held and not before.held
        if line := policy.announce(before, self.gate, self.reading):
            self._pending = f"{self._pending} | {line}" if self._pending else line

    def _measured(self, now: float) -> policy.Situation:
        """Weigh the children once a look, and only while held: the kernel walks every page of each."""
        held = self.gate.held
        self._children = self.crew.children() if held else None
        return policy.Situation(
            reading=self.reading,
            now=now,
            started_at=self.started_at,
            paused=self._paused(),
            running=self.crew.running,
            started=sum(state.total_count.values()),
            own_kib=self.crew.own_kib() if held else 0,
            baseline_kib=self.crew.baseline_kib if held else 0,
            can_recycle=held and any(not child.task and self._worth(child) for child in self._children or ()),
        )

    @staticmethod
    def _worth(child: reclaim.Child) -> bool:
        return child.leaving or child.pss_kib - child.fresh_kib > reclaim.WORTH_KIB

    def _report_faults(self) -> None:
        for fault in set(self.reading.faults) - set(self._faults):
            logger.warning("A probe of the governor fails, and changes nothing: %s", fault)
        self._faults = self.reading.faults

    def _settle(self) -> None:
        """Say what changed; a hold is declared when everything that was handed over has begun."""
        if not self._pending:
            return
        if self.gate.held and self.acts and self.crew.unstarted:
            self.crew.call_later(SETTLE_SECONDS, self._settle)
            return
        level = logger.warning if self.gate.held else logger.info
        level("%s%s", "" if self.acts else "[dry-run] ", self._pending)
        self._pending = None
        self._event("worker-governor", held=self.gate.held, reasons=list(self.gate.reasons), dry_run=not self.acts)

    # --- children -----------------------------------------------------------------------------------------------

    def _watch_children(self) -> None:
        """Write down how large each running task is, and end or mark what is larger than it may be."""
        if not self.crew.has_children:
            return
        children = self.crew.running_children()
        for child in children:
            if self.board:
                self.board.size(child.pid, child.pss_kib)
        if self.acts:
            for step in reclaim.over_limit(children, self.crew.soft_kib, self.crew.hard_kib):
                self._take(step, {child.pid: child for child in children}[step.pid])
        self._growth.seen(children, time.monotonic())
        if self.board:
            self.board.forget({*self.crew.pids, os.getpid()})

    def _climb_ladder(self) -> None:
        """Held for memory: make it come back."""
        if not self.gate.held or not self.acts or self.crew.unstarted:
            return
        children = self.crew.children() if self._children is None else self._children
        by_pid = {child.pid: child for child in children}
        for step in reclaim.steps(self.settings, self.gate, children):
            self._take(step, by_pid[step.pid])
        if self._situation and (sentence := policy.must_exit(self.settings, self.gate, self._situation)):
            logger.critical("%s Ending with code %s, to be started again.", sentence, EXIT_CODE)
            state.should_stop = EXIT_CODE

    def _take(self, step: reclaim.Step, child: reclaim.Child) -> None:
        if step.rung == "end":
            if self.crew.end(child.pid, child.task or "", child.pss_kib):
                self.counts["ended"] += 1
                self.sizes.learn(child.task or "", child.pss_kib - child.fresh_kib)
                logger.error("%s (child %s): %s", child.task, child.pid, step.reason)
        elif step.rung == "interrupt-busy":
            if self.crew.interrupt(child.pid):
                self.counts["interrupted"] += 1
                logger.warning("%s (child %s): %s", child.task, child.pid, step.reason)
        elif not child.leaving:
            self.crew.recycle(child.pid, "held" if self.gate.held else "soft-limit")
            logger.info("Child %s: %s", child.pid, step.reason)

    # --- reservation --------------------------------------------------------------------------------------------

    def _learn(self) -> None:
        if self.settings.memory_reservation == "off" or self.board is None:
            return
        new = told(self.board.folder)
        for task, added_kib in new:
            self.sizes.learn(task, added_kib)
        if new:
            self.sizes.save()

    def _reserve(self) -> None:
        """Work out how many messages the worker may have when each running task keeps what it was promised."""
        if self.settings.memory_reservation == "off":
            return
        children = [child for child in self.crew.children() if child.task]
        running = [Promise(child.task or "", max(0, child.pss_kib - child.fresh_kib)) for child in children]
        busy = max(len(running), self.crew.running)
        if self.crew.has_children:
            # Handed over and not begun, or over and the next about to take its slot: each may be the largest.
            largest, _ = self.sizes.largest_kib() or ("", 0)
            running += [Promise(largest, 0)] * (busy - len(running))
        free = max(0, self.crew.places - busy)
        admission = admissible(self.settings, self.reading, self.sizes, running, free, self.crew.default_task_kib)
        self._admitted = busy + admission.slots
        if admission.sentence != self._admission and admission.slots < free:
            dry = "" if self.settings.memory_reservation == "on" and self.acts else "[dry-run] "
            logger.info("%s%s", dry, admission.sentence)
        self._admission = admission.sentence

    # --- telling ------------------------------------------------------------------------------------------------

    def info(self) -> dict[str, Any]:
        """What ``celery inspect stats`` shows: state, reasons, readings, thresholds, seconds held, and counts."""
        held_now = time.monotonic() - self._looked_at if self.gate.held else 0.0
        return {
            **shown_all(self.settings, self.gate, self.reading),
            "slots": self._consumer.slots if self._consumer else 0,
            "places": self.crew.places,
            "running": self.crew.running,
            "held_seconds": round(self.held_seconds + held_now, 1),
            "soft_limit_kib": self.crew.soft_kib,
            "hard_limit_kib": self.crew.hard_kib,
            "recycled": self.crew.counts(),
            "redelivered": self.redelivered,
            "suspects": sorted(self.trial.open),
            "reservation": self._admission,
            **self.counts,
        }
