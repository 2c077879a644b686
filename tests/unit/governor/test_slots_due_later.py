"""On RabbitMQ a message with an ETA takes no slot until it is due."""

from datetime import UTC, datetime, timedelta

import pytest

from tests.support.governor.channel import Worker


@pytest.mark.parametrize("multiplier", [1, 2])
def test_message_that_is_due_later_leaves_its_slot_to_another(monkeypatch: pytest.MonkeyPatch, multiplier: int) -> None:
    worker, due = Worker(1, multiplier), datetime.now(UTC) + timedelta(hours=1)
    (first,) = worker.open
    message = worker.channel.deliver(first, due.isoformat())
    worker.later()
    (second,) = worker.open
    assert second != first
    assert not worker.consumer.over_capacity
    monkeypatch.setattr("ami.governor.slot_consumer.time.time", due.timestamp)
    assert worker.consumer.over_capacity
    worker.consumer.adjust()
    assert not worker.consumer.over_capacity, "an idle slot closes for it"
    message.ack()
    worker.later()
    assert len(worker.open) == 1
    assert not worker.consumer.over_capacity
