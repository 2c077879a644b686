"""Lets the consumers of a connection claim in turn, so that no queue and no consumer starves."""

from collections import Counter
from collections.abc import Iterable
from itertools import zip_longest
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ami.transports.objectstore.broker.channel import Channel
    from ami.transports.objectstore.broker.consumer import Consumer

    Pair = tuple[Channel, Consumer]

#: The most messages of one claim, and of those that a channel has claimed and not delivered.
AT_ONCE = 32


def claim_in_turn(channels: Iterable["Channel"], ready: set[str]) -> None:
    """Claim messages of the ``ready`` queues until these are empty or no consumer has room.

    The consumers of a channel share its room, and those of a queue its messages. Who was served least recently comes
    first. A queue that had fewer messages than its consumers could take is removed from ``ready``.
    """
    channels = list(channels)
    while waiting := _waiting(channels, ready):
        sharing = Counter(id(channel) for channel, _ in waiting)
        groups: dict[tuple[str, bool], list[Pair]] = {}
        for pair in waiting:
            groups.setdefault((pair[1].queue, pair[1].no_ack), []).append(pair)
        for (queue, no_ack), pairs in groups.items():
            places = _places(pairs, sharing)
            if not places or queue not in ready:
                continue
            claimed = places[0][0].claim(queue, no_ack, len(places))
            if len(claimed) < len(places):
                ready.discard(queue)
            for (channel, consumer), entry in zip(places, claimed, strict=False):
                channel.accept(consumer, entry)


def _waiting(channels: list["Channel"], ready: set[str]) -> list["Pair"]:
    pairs = [
        (channel, consumer)
        for channel in channels
        for consumer in channel.consumers
        if consumer.queue in ready and channel.room(consumer)
    ]
    return sorted(pairs, key=lambda pair: pair[1].served)


def _places(pairs: list["Pair"], sharing: Counter[int]) -> list["Pair"]:
    """Return who gets the first message of a queue, the second, and so on.

    ``sharing`` counts, by the `id` of a channel, its consumers that have not got their share of its room in this turn.
    """
    left: dict[int, int] = {}
    shares: list[list[Pair]] = []
    for pair in pairs:
        channel, consumer = id(pair[0]), pair[1]
        room = left.setdefault(channel, pair[0].room(consumer))
        share = -(-room // sharing[channel])
        sharing[channel] -= 1
        left[channel] = room - share
        shares.append([pair] * share)
    return [pair for turn in zip_longest(*shares) for pair in turn if pair is not None][:AT_ONCE]
