"""A kombu message as bytes: a line of JSON with its headers and properties, then its body unchanged."""

import json as plain_json
from typing import Any

from kombu.utils import json

from ami.transports.objectstore.storage.errors import StorageError

Envelope = dict[str, Any]


def published(message: Envelope, exchange: str, routing_key: str) -> Envelope:
    """Return a copy of a message as it is stored: without what its delivery added, if it is one that was delivered."""
    properties = {name: value for name, value in message["properties"].items() if name != "delivery_tag"}
    properties["delivery_info"] = {"exchange": exchange, "routing_key": routing_key}
    return {**message, "properties": properties}


def seal(message: Envelope) -> bytes:
    """Return the bytes of a message made by `Channel.prepare_message`; its body may be text or bytes."""
    body = message["body"]
    described = {name: value for name, value in message.items() if name != "body"}
    content = body.encode() if isinstance(body, str) else bytes(body)
    return str(json.dumps(described)).encode() + b"\n" + content


def unseal(content: bytes) -> Envelope:
    """Return the message that `seal` encoded; its body is bytes. Raises StorageError for anything else."""
    line, _, body = content.partition(b"\n")
    message = _described(line)
    properties = message.get("properties") if isinstance(message, dict) else None
    if not isinstance(properties, dict) or not isinstance(properties.get("delivery_info"), dict):
        raise StorageError("it is not a message")
    if not isinstance(message.get("headers"), dict):
        message["headers"] = {"antenna_headers": message.get("headers")}
    message["body"] = body
    envelope: Envelope = message
    return envelope


def _described(line: bytes) -> Any:
    try:
        return json.loads(line)
    except Exception:  # A header may look like one of kombu's own types without being one.
        try:
            return plain_json.loads(line)
        except (ValueError, RecursionError) as error:
            raise StorageError(f"it cannot be read: {type(error).__name__}") from error
