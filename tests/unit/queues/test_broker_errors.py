"""What an operator reads when a broker operation fails: where, why in words, and the remedy."""

from typing import Any

import pytest
from amqp.exceptions import AccessRefused, NotAllowed, NotFound, PreconditionFailed
from kombu.exceptions import OperationalError

from ami.celery.producer import Unconfirmed
from ami.queues import broker_errors
from ami.transports.objectstore.storage.errors import StorageError
from tests.support.brokers import celery_at

WHERE = "Broker operation failed (amqp://antenna:**@127.0.0.1:1/antenna): "


def caused(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ConnectionRefusedError(111, "Connection refused"), "connection refused; start the broker or correct"),
        (
            caused(OperationalError("[Errno 111]"), ConnectionRefusedError(111, "Connection refused")),
            "connection refused; start the broker or correct CELERY_BROKER_URL.",
        ),
        (
            NotFound("NOT_FOUND - no queue 'antenna' in vhost 'antenna'", (60, 70)),
            "no queue 'antenna' in vhost 'antenna'; run 'manage.py queues declare'.",
        ),
        (PreconditionFailed("PRECONDITION_FAILED - inequivalent arg 'x'", (50, 10)), "inequivalent arg 'x'; drain the"),
        (
            PreconditionFailed(
                "PRECONDITION_FAILED - inequivalent arg 'type' for exchange 'antenna' in vhost '/': received 'topic' "
                "but current is 'direct'",
                (40, 10),
            ),
            "inequivalent arg 'type' for exchange 'antenna' in vhost '/': received 'topic' but current is 'direct'; "
            "another application declared it: give the split a virtual host of its own in CELERY_BROKER_URL, and move",
        ),
        (
            AccessRefused("ACCESS_REFUSED - Login was refused", (10, 11)),
            "the login is refused; correct user, password and",
        ),
        (
            NotAllowed("NOT_ALLOWED - vhost antenna not found", (10, 40)),
            "there is no such virtual host for this login; correct",
        ),
        (
            AccessRefused("ACCESS_REFUSED - access to queue 'a' refused for user 'b'", (50, 10)),
            "access to queue 'a' refused for user 'b'; grant the user of CELERY_BROKER_URL this permission.",
        ),
        (Unconfirmed("no confirmation"), "it did not confirm the message in time; see whether it is short of memory"),
        (StorageError("cannot write 'x' in /broker: No space left"), "cannot write 'x' in /broker: No space left; see"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_failure_is_said_in_words_with_its_remedy(error: Exception, said: str):
    with celery_at("amqp://antenna:s3cret@127.0.0.1:1/antenna"):
        sentence = broker_errors.sentence(error)
    assert sentence.startswith(WHERE + said)
    assert "s3cret" not in sentence


def test_unknown_error_is_named_without_its_words():
    class Strange(OSError):
        pass

    with celery_at("amqp://antenna:s3cret@127.0.0.1:1/antenna"):
        sentence: Any = broker_errors.sentence(Strange("amqp://antenna:s3cret@127.0.0.1"))
    assert sentence == WHERE + "the connection fails (Strange); start the broker or correct CELERY_BROKER_URL."
