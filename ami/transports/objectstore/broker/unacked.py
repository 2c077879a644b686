"""Delivered messages of a channel that are not settled yet."""

from typing import Any

from kombu.transport import virtual


class QoS(virtual.QoS):
    """Unacknowledged messages by delivery tag; the channel settles them."""

    def ack(self, delivery_tag: int) -> None:
        """Acknowledge a message; a settled one is ignored."""
        message = self._delivered.get(delivery_tag)
        if message is not None and delivery_tag not in self._dirty:
            self.channel.acknowledge(message)
            super().ack(delivery_tag)

    def reject(self, delivery_tag: int, requeue: bool = False) -> None:
        """Requeue or dead-letter a message; a settled one is ignored."""
        message = self._delivered.get(delivery_tag)
        if message is not None and delivery_tag not in self._dirty:
            self.channel.reject(message, requeue)
            self._quick_ack(delivery_tag)

    def restore_unacked(self) -> list[Any]:
        """Requeue every message that is not settled."""
        self._flush()
        messages = list(self._delivered.values())
        self._delivered.clear()
        self.channel.requeue_unacked(messages)
        return []

    def restore_unacked_once(self, stderr: Any = None) -> None:  # noqa: ARG002 - kombu's name
        """Requeue when the channel closes, without kombu's message: reading dead letters does so on purpose."""
        self._on_collect.cancel()
        if self._delivered:
            self.restore_unacked()
