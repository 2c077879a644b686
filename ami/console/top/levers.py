"""The operations that keys run: each is asked for with a reason and a confirmation, and recorded as a command's."""

from collections.abc import Callable
from dataclasses import dataclass

from django.conf import settings

from ami.queues import audit_log, pauses
from ami.queues.letters import requested_replays
from ami.queues.letters.found import Group
from ami.queues.letters.selection import Selection
from ami.queues.wishes import Operator


@dataclass(frozen=True)
class Lever:
    """One operation on one target: ``effect`` says what it does, ``run`` takes the reason and returns a sentence."""

    verb: str
    target: str
    effect: str
    run: Callable[[str], str]

    @property
    def name(self) -> str:
        return f"{self.verb} {self.target}"


def pause(queue: str) -> Lever:
    def run(why: str) -> str:
        pauses.pause(settings.ANTENNA_TOPOLOGY, queue, _operator(), why=why, seconds=0)
        return f"{queue} is paused. The workers confirm within seconds."

    return Lever("pause", queue, "No task of it begins on any worker, also after restarts. What runs goes on.", run)


def resume(queue: str) -> Lever:
    def run(why: str) -> str:
        pauses.resume(settings.ANTENNA_TOPOLOGY, queue, _operator(), why=why, seconds=0)
        return f"{queue} is resumed. The workers confirm within seconds."

    return Lever("resume", queue, "Workers consume it again.", run)


def replay(group: Group, queue: str) -> Lever:
    """Return the replay of a cause's letters in a queue; an empty name is all queues."""
    buried = {row.queue: row.dead_letter_queue for row in settings.ANTENNA_TOPOLOGY.workloads}

    def run(why: str) -> str:
        selection = Selection(queue=buried.get(queue, ""), cause=group.cause)
        return requested_replays.replay(settings.ANTENNA_TOPOLOGY, selection, _operator(), why=why)

    target = f"{group.letters} letter{'' if group.letters == 1 else 's'} of {group.task.rpartition('.')[2]}"
    effect = "Fix the cause first: a task that fails again is buried again."
    return Lever("replay", target, effect, run)


def _operator() -> Operator:
    return Operator(audit_log.command_user(), "command")
