"""Remote control (``celery inspect``): a worker's control queue has another name on each connection."""

import secrets
from typing import Any

from celery import current_app
from celery.app.control import Control as CeleryControl
from kombu import Queue
from kombu.pidbox import Mailbox as KombuMailbox
from kombu.pidbox import Node as KombuNode

from ami.celery.broker_kind import kind_of

#: A clock of a command beyond this is not one: it would be taken over, and no header could carry the next one.
MAX_CLOCK = 2**53


class Node(KombuNode):
    """A worker's end of remote control; a command can set its clock ahead, but not to where it breaks."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.adjust_clock = self._adjust_within_bounds

    def _adjust_within_bounds(self, other: Any) -> None:
        if isinstance(other, int) and 0 <= other < MAX_CLOCK:
            self.mailbox.clock.adjust(other)


class Mailbox(KombuMailbox):
    """Gives each connection of a worker a control queue with a name of its own.

    On RabbitMQ a control queue belongs to its connection and is deleted with it (incident 8). To the broker a
    connection that was cut off lives until its heartbeats have been missed, minutes later: a worker that reconnects
    sooner would find the queue of the same name locked (405), and Celery ends it for that. Commands are
    sent to all queues, so no publisher depends on the name.
    """

    node_cls = Node

    def get_queue(self, hostname: str) -> Queue:
        queue: Any = super().get_queue(hostname)
        if queue.exclusive and kind_of(current_app.connection_for_read()).is_managed:
            queue.name = f"{hostname}.{secrets.token_hex(4)}.{self.namespace}.pidbox"
        return queue


class Control(CeleryControl):
    """Celery's, with this mailbox."""

    Mailbox = Mailbox
