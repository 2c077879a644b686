"""The bodies of dead letters: small ones in their rows, large ones as files in the storage ``letters``."""

import hashlib
from collections.abc import Iterable
from typing import Any

from django.core.files.base import ContentFile
from django.core.files.storage import storages

from ami.queues.models import Letter
from ami.queues.refusals import Refused
from ami.queues.wishes import Operator

MOST_ROW_BYTES = 1024**2


def of(message: Any) -> bytes:
    """Return the body of a message as it is published."""
    body = message.body
    return body.encode("utf-8", "surrogatepass") if isinstance(body, str) else bytes(body or b"")


def keep(row: Letter, body: bytes) -> None:
    """Set the body of an unsaved row; one of over 1 MiB is written to the storage, under a name of its identity.

    Raises:
        OSError: the storage failed.
    """
    row.body_bytes = len(body)
    if len(body) <= MOST_ROW_BYTES:
        row.body = body
        return
    name = hashlib.sha256(row.identity.encode()).hexdigest()
    row.body_name = storages["letters"].save(f"{name[:2]}/{name}", ContentFile(body))


def read(row: Letter) -> bytes:
    """Return the body.

    Raises:
        OSError: the storage failed, or has the file no more.
    """
    if not row.body_name:
        return bytes(row.body)
    with storages["letters"].open(row.body_name, "rb") as file:
        return bytes(file.read())


def record_look(row: Letter, operator: Operator) -> None:
    """Record in the audit log that an operator reads a message, which may have secrets."""
    operator.record("read letter", which=f"letter {row.pk}")


def looked_at(row: Letter, operator: Operator) -> bytes:
    """Return the body for an operator who reads it, with an entry in the audit log.

    Raises:
        Refused: the storage failed, or has the file no more.
    """
    record_look(row, operator)
    try:
        return read(row)
    except OSError as error:
        raise Refused(f"The message of letter {row.pk} cannot be read from the storage: {error}.") from error


def delete(names: Iterable[str]) -> None:
    """Delete files from the storage; an empty name has none."""
    for name in names:
        if name:
            storages["letters"].delete(name)
