"""Names of queues and exchanges: which are allowed, and how a queue's name is spelled as the name of a folder."""

import hashlib
from urllib.parse import quote

from amqp.exceptions import AccessRefused, PreconditionFailed

#: AMQP's short strings: names and routing keys, in UTF-8.
NAME_BYTES = 255

#: File systems end a name here.
FILE_NAME_BYTES = 255

#: The most of a long name that its folder's name begins with; what follows is its hash.
BEGINNING_BYTES = 80
HASH_DIGITS = 40

#: The names that brokers give; no client may declare one.
RESERVED = "amq."


def check_name(kind: str, name: str) -> None:
    """Refuse a name or routing key that AMQP cannot carry. Raises amqp's PreconditionFailed."""
    try:
        length = len(name.encode())
    except UnicodeEncodeError:
        raise PreconditionFailed(f"{kind} {name[:40]!r} is not text: it holds half a surrogate pair") from None
    if length > NAME_BYTES:
        raise PreconditionFailed(f"{kind} {name[:40]!r}... takes {length} bytes; {NAME_BYTES} are allowed")


def refuse_reserved(kind: str, name: str) -> None:
    """Raises amqp's AccessRefused for a new ``amq.`` name."""
    if name.startswith(RESERVED):
        raise AccessRefused(f"ACCESS_REFUSED - {kind} name '{name}' contains reserved prefix '{RESERVED}*'")


def file_name(queue: str) -> str:
    """Return the name of a queue's folder and of its notification file.

    It is percent-encoded, a leading dot too: ``..`` is another folder, and folders that begin with a dot are not
    queues. One that a file system could not hold ends in the queue name's hash, after ``%~``, which no encoded name
    holds. Raises amqp's PreconditionFailed.
    """
    check_name("queue", queue)
    spelled = _spelled(queue)
    return spelled if len(spelled) <= FILE_NAME_BYTES else _abbreviated(queue, spelled)


def key_name(queue: str, most_bytes: int) -> str:
    """Return the same for a bucket, where it becomes part of a key, which is percent-encoded once more.

    ``most_bytes`` is what a part of a key may take. Raises amqp's PreconditionFailed.
    """
    check_name("queue", queue)
    spelled = _spelled(queue)
    return spelled if len(quote(spelled, safe="")) <= most_bytes else _abbreviated(queue, spelled)


def _spelled(queue: str) -> str:
    spelled = quote(queue, safe="")
    return f"%2E{spelled[1:]}" if spelled.startswith(".") else spelled


def _abbreviated(queue: str, spelled: str) -> str:
    digest = hashlib.sha256(queue.encode()).hexdigest()[:HASH_DIGITS]
    return f"{spelled[:BEGINNING_BYTES]}%~{digest}"
