"""The dead letters of a queue: rows that the collector wrote, and messages that it has not taken yet.

Where letters are not collected (``ANTENNA_COLLECT_LETTERS=0``) they are the messages alone.
"""

from collections.abc import Callable

from celery.utils.log import get_logger
from django.conf import settings
from django.db import Error
from kombu import Connection

from ami.celery.thread_database import database_block
from ami.queues import dead_letters, failures
from ami.queues.dead_letters import DeadLetter
from ami.queues.letters import replays, rows
from ami.queues.letters.selection import Selection
from ami.queues.refusals import Refused
from ami.queues.wishes import Operator
from ami.topology.topology import Topology

logger = get_logger(__name__)


def counts(topology: Topology, connection: Connection) -> dict[str, int]:
    """Return how many letters of each burial queue there are.

    Raises:
        amqp.exceptions.NotFound: the topology was never declared.
    """
    found = dead_letters.counts(topology, connection)
    if settings.ANTENNA_COLLECT_LETTERS:
        try:
            with database_block():
                kept = rows.counts()
            for queue, count in kept.items():
                found[queue] = found.get(queue, 0) + count
        except Error as error:
            logger.warning("Dead letters in the database not counted: %s", error)
    return found


def oldest(connection: Connection, queue: str, limit: int = 20) -> list[DeadLetter]:
    """Return the oldest letters of ``queue``, each with its cause; they stay there, in order."""
    found = rows.oldest(queue, limit) if settings.ANTENNA_COLLECT_LETTERS else []
    if left := limit - len(found):
        found += dead_letters.peek(connection, queue, left)
    return failures.explained(found)


def planned(connection: Connection, queue: str, limit: int | None = None) -> int:
    """Return how many letters `replay` or `discard` would reach now."""
    kept = rows.counts().get(queue, 0) if settings.ANTENNA_COLLECT_LETTERS else 0
    count = kept + dead_letters.planned(connection, queue)
    return count if limit is None else min(limit, count)


def replay(
    topology: Topology,
    connection: Connection,
    queue: str,
    operator: Operator,
    limit: int | None = None,
    progress: Callable[[int], None] = lambda _: None,
) -> int:
    """Send the letters of ``queue`` to where their tasks belong today, all retries before them; return how many.

    Raises:
        Refused: the broker did not take a letter; it and those after it stay dead.
    """
    done, messages = 0, dead_letters.planned(connection, queue)
    if settings.ANTENNA_COLLECT_LETTERS and rows.dead(queue).exists():
        begun = replays.begin(topology, Selection(queue=queue), operator, limit=limit)
        ended = replays.finish(topology, connection, begun, lambda replay: progress(replay.done))
        if ended.error:
            raise Refused(f"{ended.done} of {ended.total} letters were replayed: {ended.error}.")
        done = ended.done
    left = messages if limit is None else min(messages, limit - done)
    return done + (dead_letters.replay(topology, connection, queue, left, progress) if left else 0)


def discard(connection: Connection, queue: str, limit: int | None = None) -> int:
    """Give up the letters of ``queue``, the oldest ``limit`` or all of them; return how many."""
    done = rows.discard(rows.dead(queue), limit) if settings.ANTENNA_COLLECT_LETTERS else 0
    left = None if limit is None else limit - done
    return done + (0 if left == 0 else dead_letters.discard(connection, queue, left))
