"""A message that arrives before its time is given to the broker's delay, where it has one that reads its ETA."""

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest

from ami.celery.broker_kind import KINDS, BrokerKind
from ami.celery.message_guard import _delay

LATER = datetime.now(UTC) + timedelta(hours=1)
ZONED, NAIVE = LATER.isoformat(), LATER.replace(tzinfo=None).isoformat()


@pytest.mark.parametrize(
    ("kind", "eta", "target"),
    [
        (KINDS["objectstore"], ZONED, ("", "moths")),
        (KINDS["objectstore"], NAIVE, None),
        (BrokerKind(), ZONED, None),
    ],
    ids=["zoned", "without a zone", "no delays"],
)
def test_an_early_message_goes_to_the_delay_that_its_broker_has(kind, eta, target):
    assert _delay(kind, SimpleNamespace(headers={"eta": eta}), 3600, "moths") == target


def test_rabbitmq_delays_an_early_message_by_its_routing_key():
    exchange, key = _delay(KINDS["amqp"], SimpleNamespace(headers={"eta": ZONED}), 3, "moths")
    assert (exchange, key.endswith("1.1.moths")) == ("celery_delayed_27", True)
