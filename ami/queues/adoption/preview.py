"""Counts what an adoption would do, without moving a message."""

from collections import Counter

from ami.queues.adoption.old_broker import OldBroker
from ami.queues.adoption.plan import Planner
from ami.queues.adoption.tally import Line


def preview(old: OldBroker, planner: Planner) -> Counter[Line]:
    """Return what would become of the messages that wait. They are read and return to their queues, in order.

    Raises:
        AdoptionRefused: none of the queues exists.
        OldBrokerFailed: the old broker failed.
    """
    found: Counter[Line] = Counter()
    for state in old.existing():
        # Not more than there are now: publishers may go on.
        for _ in range(state.messages or 0):
            message = old.get(state.name)
            if message is None:
                break
            found[Line.of(state.name, planner.plan(message))] += 1
    return found
