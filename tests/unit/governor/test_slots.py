"""Slots on RabbitMQ: one consumer each, opened and closed in an order that leaves no message between two workers."""

import pytest
from amqp.exceptions import ChannelError, RecoverableConnectionError

from ami.governor.slot_consumer import SlotConsumer
from tests.support.governor.channel import QUEUES, Channel, Worker


@pytest.mark.parametrize("slots", [0, 1, 4])
def test_each_slot_is_a_consumer_with_its_own_prefetch(slots: int) -> None:
    worker = Worker(slots)
    assert worker.calls() == [("qos", 1, False), *[("consume", "quick")] * slots]
    assert all(tag.startswith("w-slot-") for tag in worker.open)


def test_a_slot_without_a_message_closes_with_a_round_trip() -> None:
    worker = Worker(3)
    first, _, last = worker.open
    message = worker.channel.deliver(first)
    worker.calls()
    worker.lower(1)
    assert [name for name, *_ in worker.calls()] == ["cancel", "cancel"]
    assert worker.open == [first]
    assert worker.got == [message]
    assert last not in worker.open


def test_a_busy_slot_closes_before_its_acknowledgement() -> None:
    worker = Worker(1)
    (tag,) = worker.open
    message = worker.channel.deliver(tag)
    worker.calls()
    worker.lower(0)
    assert worker.calls() == []
    message.ack()
    assert worker.calls() == [("settled", 1), ("cancel behind", tag), ("ack", 1)]
    assert worker.open == []


def test_slots_lowered_at_a_settlement_close_before_the_next_message() -> None:
    worker = Worker(1)
    (tag,) = worker.open
    message = worker.channel.deliver(tag)
    worker.calls()
    worker.when_settled = lambda: setattr(worker.consumer, "slots", 0)
    message.reject(requeue=True)
    assert worker.calls() == [("settled", 1), ("cancel behind", tag), ("reject", 1, True)]


def test_a_slot_that_stays_is_only_acknowledged() -> None:
    worker = Worker(2)
    message = worker.channel.deliver(worker.open[0])
    worker.calls()
    message.ack()
    worker.later()
    assert worker.calls() == [("settled", 1), ("ack", 1)]
    assert len(worker.open) == 2


def test_raised_slots_open_again() -> None:
    worker = Worker(3)
    worker.lower(0)
    assert worker.open == []
    worker.lower(2)
    assert len(worker.open) == 2


def test_a_message_that_crossed_with_a_cancel_runs_and_counts() -> None:
    worker = Worker(2)
    worker.channel.crossing = worker.channel.deliver
    worker.lower(1)
    (orphan,) = worker.got
    assert worker.open == []
    assert not worker.consumer.over_capacity
    worker.lower(2)
    assert len(worker.open) == 1
    orphan.ack()
    assert len(worker.open) == 1  # It is on a task's greenlet, maybe.
    worker.later()
    assert len(worker.open) == 2


def test_more_messages_than_slots_are_over_capacity() -> None:
    worker = Worker(2)
    messages = [worker.channel.deliver(tag) for tag in worker.open]
    worker.lower(1)
    assert worker.consumer.over_capacity
    messages[0].ack()
    assert not worker.consumer.over_capacity


def test_a_delivery_during_a_cancel_opens_no_slots() -> None:
    worker = Worker(3)

    def crossing(tag: str) -> None:
        worker.channel.deliver(tag)
        asked = list(worker.channel.calls)
        worker.consumer.adjust()
        assert worker.channel.calls == asked  # Not while the broker's answer is awaited.

    worker.channel.crossing = crossing
    worker.lower(1)
    assert worker.open == []
    assert [name for name, *_ in worker.calls()].count("cancel") == 3
    assert len(worker.got) == 1


def test_what_is_refused_is_never_handed_on_and_its_slot_goes_on() -> None:
    worker = Worker(1)
    worker.refused = {"1"}
    (tag,) = worker.open
    worker.calls()
    worker.channel.deliver(tag)
    assert worker.got == []
    assert worker.calls() == [("settled", 1), ("reject", 1, False)]
    assert worker.got == []
    message = worker.channel.deliver(tag)
    assert worker.got == [message]


def test_what_is_refused_while_held_closes_its_slot_first() -> None:
    worker = Worker(1)
    worker.refused = {"1"}
    worker.when_settled = lambda: setattr(worker.consumer, "slots", 0)
    (tag,) = worker.open
    worker.calls()
    worker.channel.deliver(tag)
    assert worker.calls() == [("settled", 1), ("cancel behind", tag), ("reject", 1, False)]


def test_cancelled_it_opens_nothing_until_it_consumes_again() -> None:
    worker = Worker(2)
    message = worker.channel.deliver(worker.open[0])
    worker.consumer.cancel()
    assert worker.open == []
    assert not worker.consumer.consuming_from("quick")
    worker.consumer.adjust()
    message.ack()
    worker.later()
    assert worker.open == []
    worker.consumer.consume()
    assert len(worker.open) == 2


def test_a_worker_of_several_queues_has_its_slots_on_each() -> None:
    worker = Worker(3, queues=QUEUES)
    opened = [queue for name, queue, *_ in worker.calls() if name == "consume"]
    assert sorted(opened) == ["quick"] * 3 + ["slow"] * 3
    worker.lower(0)
    assert worker.open == []


def test_a_cancelled_queue_loses_its_slots() -> None:
    worker = Worker(4, queues=QUEUES)
    worker.calls()
    worker.consumer.cancel_by_queue("slow")
    assert [name for name, *_ in worker.calls()] == ["cancel"] * 4
    assert [worker.consumer.consuming_from(queue) for queue in ("quick", "slow", QUEUES[0])] == [True, False, True]
    worker.lower(5)
    assert worker.calls() == [("consume", "quick")]


def test_a_queue_without_a_slot_is_still_consumed_from() -> None:
    assert Worker(0).consumer.consuming_from("quick")


def test_each_slot_holds_as_many_messages_as_the_multiplier() -> None:
    worker = Worker(2, multiplier=3)
    assert worker.calls() == [("qos", 3, False), *[("consume", "quick")] * 2]


def test_crossed_messages_and_slots_stay_within_the_multiplier() -> None:
    worker = Worker(2, multiplier=2)
    worker.channel.crossing = worker.channel.deliver
    worker.lower(1)  # One slot of two messages, and the message that crossed.
    worker.calls()
    worker.lower(2)
    assert len(worker.open) == 1
    worker.consumer.adjust()
    assert not worker.consumer.over_capacity
    worker.got[0].ack()
    worker.later()
    assert len(worker.open) == 2


def test_the_emptiest_slot_closes_first_and_its_messages_count() -> None:
    worker = Worker(2, multiplier=2)
    full, half = worker.open
    for tag in (full, full, half):
        worker.channel.deliver(tag)
    worker.calls()
    worker.lower(1)
    assert worker.open == [full]
    assert worker.consumer.over_capacity
    worker.got[2].ack()
    assert not worker.consumer.over_capacity


def test_a_channel_closed_by_the_broker_is_a_lost_connection() -> None:
    worker = Worker(2)

    def close(_: str) -> None:
        raise ChannelError("closed")

    worker.channel.crossing = close
    with pytest.raises(RecoverableConnectionError, match="closed"):
        worker.lower(1)
    worker.calls()
    worker.lower(2)
    assert worker.calls() == [("consume", "quick")] * 2


def test_the_prefetch_that_celery_asks_for_is_left_to_the_slots() -> None:
    worker = Worker(1)
    worker.calls()
    worker.consumer.qos(prefetch_count=8)
    assert worker.calls() == []


def test_unmanaged_it_is_kombus_own_consumer() -> None:
    channel = Channel()
    consumer = SlotConsumer(channel, QUEUES[:1], auto_declare=False)
    consumer.slots = 3
    consumer.adjust()
    consumer.qos(prefetch_count=8)
    consumer.consume()
    assert channel.calls == [("qos", 8, False), ("consume", "quick")]
    assert consumer.consuming_from("quick")
    consumer.cancel_by_queue("quick")
    assert not consumer.consuming_from("quick")
    assert channel.callbacks == {}
