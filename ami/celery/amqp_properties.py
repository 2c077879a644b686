"""Reads an AMQP message whose properties cannot be read as one without any, instead of ending the worker.

RabbitMQ carries header tables that py-amqp cannot decode: a time beyond the year 9999, tables within tables. The error
would be raised in the connection's own loop, before any code sees the message, at every delivery.
"""

from typing import Any

from amqp.basic_message import Message

#: The property that says why the others are missing.
UNREADABLE = "antenna_unreadable"

_load_properties = Message._load_properties


def _load_or_mark(self: Any, class_id: int, buf: Any, offset: int) -> Any:
    try:
        return _load_properties(self, class_id, buf, offset)
    except Exception as error:  # On any error the message must still reach the code that settles it.
        self.properties = {UNREADABLE: f"{type(error).__name__}: {str(error)[:100]}"}
        return offset


def install() -> None:
    """Replace py-amqp's reader of properties in this process."""
    Message._load_properties = _load_or_mark
