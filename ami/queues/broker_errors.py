"""What the broker's libraries raise, and one sentence for an operator about it."""

from amqp.exceptions import AMQPError, ConnectionForced, RecoverableConnectionError
from celery import current_app
from kombu.exceptions import OperationalError

from ami.celery import outages
from ami.celery.bulk_publisher import UnconfirmedTasks
from ami.celery.producer import Unconfirmed
from ami.queues.connection_reasons import causes, reason
from ami.transports.objectstore.storage.errors import JQueueError, UnfitStorageError

UNREACHABLE = "start the broker or correct CELERY_BROKER_URL"
#: The variable that the remedies name.
VARIABLE = UNREACHABLE.split()[-1]
LOGIN_REMEDY = "correct user, password and virtual host in CELERY_BROKER_URL"

#: What helps where another application has declared an exchange or a queue under one of our names.
ADOPT = (
    "another application declared it: give the split a virtual host of its own in CELERY_BROKER_URL, and move the "
    "waiting messages there with 'manage.py queues adopt' (docs/adopting.md)"
)

#: By the code of an AMQP error on an open connection: what helps.
REMEDIES = {
    403: "grant the user of CELERY_BROKER_URL this permission",
    404: "run 'manage.py queues declare'",
    405: "close the connection that holds the queue",
    406: "drain the queue, delete it and run 'manage.py queues declare'",
}


def kinds() -> tuple[type[BaseException], ...]:
    """Return what the configured broker's libraries raise."""
    transport = current_app.connection_for_read().transport
    return (
        OperationalError,
        AMQPError,
        OSError,
        UnfitStorageError,
        *transport.connection_errors,
        *transport.channel_errors,
    )


def sentence(error: BaseException, address: str = "", variable: str = VARIABLE) -> str:
    """Return where the broker is, without a password, why the operation failed, and the remedy.

    It is the split's, or the one at ``address``, which ``variable`` names.
    """
    why, remedy = _why(error)
    where = address or current_app.connection_for_read().as_uri()
    return f"Broker operation failed ({where}): {why}; {remedy.replace(VARIABLE, variable)}."


def is_away(error: BaseException, *, of_connection: bool = False) -> bool:
    """Whether the broker did not answer; ``of_connection``: an OSError is the broker's, and not another server's."""
    if is_unconfirmed(error):
        return False
    if isinstance(error, UnconfirmedTasks):  # A queue may be full.
        return any(is_away(cause) or isinstance(cause, (ConnectionError, TimeoutError)) for cause in _reasons(error))
    if of_connection:
        return isinstance(error, kinds()) and getattr(error, "reply_code", None) not in REMEDIES
    return isinstance(error, (OperationalError, RecoverableConnectionError, ConnectionForced))


def _reasons(error: BaseException) -> list[BaseException]:
    return [cause for cause in causes(error) if not isinstance(cause, UnconfirmedTasks)]


def is_unconfirmed(error: BaseException) -> bool:
    """Whether the broker answered and did not confirm a message in time."""
    return any(isinstance(cause, Unconfirmed) for cause in causes(error))


def complain(what: str, error: BaseException) -> None:
    """Log that a component's cycle failed with one of `kinds`, as `ami.celery.outages.complain` does."""
    if is_away(error, of_connection=True):
        outages.report(outages.BROKER, sentence, error)
    else:
        outages.complain(what, error)


def _why(error: BaseException) -> tuple[str, str]:
    for cause in causes(error):
        if isinstance(cause, Unconfirmed):
            return "it did not confirm the message in time", "see whether it is short of memory or disk"
        if isinstance(cause, AMQPError) and (cause.reply_code == 530 or "Login was refused" in str(cause)):
            return reason(cause), LOGIN_REMEDY
        if isinstance(cause, AMQPError) and cause.reply_code in REMEDIES:
            text = plain_text(cause)
            return text, ADOPT if is_anothers(text) else REMEDIES[cause.reply_code]
        if isinstance(cause, UnfitStorageError):
            return str(cause), "correct CELERY_BROKER_URL"
        if isinstance(cause, JQueueError):
            return str(cause), "see whether the folder or bucket can be written to, or correct CELERY_BROKER_URL"
    return reason(error), UNREACHABLE


def plain_text(error: AMQPError) -> str:
    """Return what RabbitMQ wrote: ``NOT_FOUND - no queue 'a' in vhost 'b'`` without the code's name."""
    return str(error.reply_text).rpartition(" - ")[2]


def is_anothers(text: str) -> bool:
    """Whether a broker's text says that an exchange is in the place of ours, or a queue that lacks our arguments."""
    return "inequivalent arg" in text and ("for exchange" in text or text.endswith("current is none"))
