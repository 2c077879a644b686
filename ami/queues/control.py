"""Remote control (``celery inspect``): a worker's control queue has another name on each connection."""

import secrets
from typing import Any

from celery import current_app
from celery.app.control import Control as CeleryControl
from kombu import Queue
from kombu.pidbox import Mailbox as KombuMailbox

from ami.queues.broker_kind import kind_of


class Mailbox(KombuMailbox):
    """Gives a worker that comes back a queue that nobody can hold against it.

    On RabbitMQ a control queue belongs to its connection and goes with it (incident 8). To the broker a connection that
    was cut off lives until its heartbeats have been missed, minutes later: a worker that comes back sooner would find
    the queue of the same name locked (405), and Celery ends it for that. Commands are sent to all queues, so the name
    is nobody's address.
    """

    def get_queue(self, hostname: str) -> Queue:
        """Return a new queue for the worker called ``hostname``."""
        queue: Any = super().get_queue(hostname)
        if queue.exclusive and kind_of(current_app.connection_for_read()).is_managed:
            queue.name = f"{hostname}.{secrets.token_hex(4)}.{self.namespace}.pidbox"
        return queue


class Control(CeleryControl):
    """Celery's, with this mailbox."""

    Mailbox = Mailbox
