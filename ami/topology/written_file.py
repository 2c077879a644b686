"""Writes a file that another process reads: it sees the old one or the new one."""

import os
import tempfile
from pathlib import Path

from ami.topology.errors import TopologyError

#: Read by another user, such as RabbitMQ.
EVERYBODY = 0o644


def write(path: Path, text: str, mode: int = EVERYBODY) -> None:
    """Write ``text`` to ``path`` atomically.

    Raises:
        TopologyError: its folder is missing or not writable.
    """
    try:
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fchmod(file.fileno(), mode)
                os.fsync(file.fileno())
            os.replace(name, path)
        except BaseException:
            os.unlink(name)
            raise
    except OSError as error:
        raise TopologyError(f"{path} cannot be written ({error.strerror}); name a file in a writable folder.") from None


def write_or_print(path: Path | None, text: str) -> None:
    """Write the file, or print the text where none is named."""
    if path is not None:
        write(path, text)
    else:
        print(text, end="")
