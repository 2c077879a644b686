"""A replay that a page asks for: a few letters at once, more by the process that collects letters."""

from celery import current_app

from ami.queues.letters import replays
from ami.queues.letters.selection import Selection
from ami.queues.models import Replay
from ami.queues.refusals import Refused
from ami.queues.wishes import Operator
from ami.topology.topology import Topology

#: So many letters are published by the request itself; more by the process that collects letters.
MOST_AT_ONCE = 20
MOST_SELECTED = 1000


def replay(
    topology: Topology,
    selection: Selection,
    operator: Operator,
    *,
    why: str = "",
    to: str = "",
    rate: float | None = None,
) -> str:
    """Begin a replay, publish it if it is small and has no rate, and return what happens as a sentence.

    Raises:
        Refused: too many letters were chosen one by one, the broker refused one, or `replays.begin` refuses.
        what the broker's connection raises.
    """
    if len(selection.ids or ()) > MOST_SELECTED:
        raise Refused(f"Select at most {MOST_SELECTED} letters, or replay all of a cause.")
    begun = replays.begin(topology, selection, operator, rate=rate, why=why, to=to)
    if begun.total <= MOST_AT_ONCE and rate is None:
        with current_app.connection_for_write() as connection:
            begun = replays.work(topology, connection, begun.pk)
    else:
        replays.in_background(begun)
    if begun.error:
        raise Refused(f"{begun.done} of {begun.total} letters were replayed: {begun.error}.")
    if begun.state == Replay.State.ENDED:
        return f"Replay: {begun.done} letters."
    return f"Replay {begun.pk} of {begun.total} letters begins within seconds."
