"""What a channel has handed out and is not settled yet."""

from typing import Any

from kombu.transport import virtual


class QoS(virtual.QoS):
    """Unacknowledged messages by delivery tag; settling one is the channel's work."""

    def ack(self, delivery_tag: int) -> None:
        """Acknowledge a message; one that is settled already is no error."""
        message = self._delivered.get(delivery_tag)
        if message is not None and delivery_tag not in self._dirty:
            self.channel.acknowledge(message)
            super().ack(delivery_tag)

    def reject(self, delivery_tag: int, requeue: bool = False) -> None:
        """Return a message, or give it up."""
        message = self._delivered.get(delivery_tag)
        if message is not None and delivery_tag not in self._dirty:
            self.channel.reject(message, requeue)
            self._quick_ack(delivery_tag)

    def restore_unacked(self) -> list[Any]:
        """Return every message that is not settled."""
        self._flush()
        messages = list(self._delivered.values())
        self._delivered.clear()
        self.channel.give_back(messages)
        return []

    def restore_unacked_once(self, stderr: Any = None) -> None:  # noqa: ARG002 - kombu's name
        """Return them when the channel closes, without a word: reading dead letters does so on purpose."""
        self._on_collect.cancel()
        if self._delivered:
            self.restore_unacked()
