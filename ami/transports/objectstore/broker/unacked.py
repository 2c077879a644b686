"""Delivered messages of a channel that are not settled yet."""

from typing import Any

from amqp.exceptions import PreconditionFailed
from kombu.transport import virtual


class QoS(virtual.QoS):
    """Unacknowledged messages by delivery tag; the channel settles them."""

    #: The highest tag of what was requeued here.
    _restored = 0

    def ack(self, delivery_tag: int, multiple: bool = False) -> None:
        """Acknowledge a message, or with ``multiple`` all up to it (up to the last for tag 0).

        Raises amqp's PreconditionFailed for a tag that is settled already, or was never given.
        """
        for tag, message in self._unsettled(delivery_tag, multiple):
            self.channel.acknowledge(message)
            self._quick_ack(tag)

    def reject(self, delivery_tag: int, requeue: bool = False) -> None:
        """Requeue or dead-letter a message. Raises as `ack` does."""
        for tag, message in self._unsettled(delivery_tag, multiple=False):
            self.channel.reject(message, requeue)
            self._quick_ack(tag)

    def _unsettled(self, delivery_tag: int, multiple: bool) -> list[tuple[int, Any]]:
        if multiple:
            found = [(tag, one) for tag, one in list(self._delivered.items()) if tag not in self._dirty]
            last = delivery_tag or max((tag for tag, _ in found), default=0)
            chosen = [(tag, one) for tag, one in found if tag <= last]
            if chosen or not delivery_tag:
                return chosen
        else:
            message = self._delivered.get(delivery_tag)
            if message is not None and delivery_tag not in self._dirty:
                return [(delivery_tag, message)]
        # A task may end after its message was requeued because the connection closed: that is no mistake of the worker.
        if delivery_tag > self._restored and not self.channel.closed:
            raise PreconditionFailed(f"PRECONDITION_FAILED - unknown delivery tag {delivery_tag}", (60, 80))
        return []

    def restore_unacked(self) -> list[Any]:
        """Requeue every message that is not settled."""
        self._flush()
        messages = list(self._delivered.values())
        self._restored = max(self._delivered, default=self._restored)
        self._delivered.clear()
        self.channel.requeue_unacked(messages)
        return []

    def restore_unacked_once(self, stderr: Any = None) -> None:  # noqa: ARG002 - kombu's name
        """Requeue when the channel closes, without kombu's message: reading dead letters does so on purpose."""
        self._on_collect.cancel()
        if self._delivered:
            self.restore_unacked()
