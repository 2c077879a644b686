"""A kombu message as bytes: a line of JSON with all that describes it, then its body as it is."""

from typing import Any

from kombu.utils import json

Envelope = dict[str, Any]


def seal(message: Envelope) -> bytes:
    """Return the bytes of what `Channel.prepare_message` made; the body may be text or bytes."""
    body = message["body"]
    described = {name: value for name, value in message.items() if name != "body"}
    content = body.encode() if isinstance(body, str) else bytes(body)
    return str(json.dumps(described)).encode() + b"\n" + content


def unseal(content: bytes) -> Envelope:
    """Return the message that `seal` made; its body is bytes."""
    line, _, body = content.partition(b"\n")
    message: Envelope = json.loads(line)
    message["body"] = body
    return message
