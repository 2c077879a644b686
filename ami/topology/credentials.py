"""Reads the logins of RabbitMQ and NATS from the environment or from files, and writes the files that they load."""

import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from ami.topology.containers import PLACEHOLDER
from ami.topology.definitions import Account
from ami.topology.errors import TopologyError

#: RabbitMQ reads the file as another user. It contains a salted hash, not the password.
MODE = 0o644

RABBITMQ = ("RABBITMQ_USER", "RABBITMQ_PASSWORD", "RABBITMQ_VHOST")
NATS = ("NATS_USER", "NATS_PASSWORD")


def account(environ: Mapping[str, str]) -> Account:
    """Return RabbitMQ's account.

    Raises:
        TopologyError: as `values`.
    """
    return Account(*values(environ, RABBITMQ))


def values(environ: Mapping[str, str], names: Sequence[str]) -> list[str]:
    """Return the value of each variable, or of the file that <NAME>_FILE names.

    Raises:
        TopologyError: a value is missing, given twice or still the placeholder; the message contains no value.
    """
    refuse_missing(environ, names)
    return [_value(environ, name) for name in names]


def refuse_missing(environ: Mapping[str, str], names: Sequence[str]) -> None:
    """Name every variable that is missing, in one sentence.

    Raises:
        TopologyError: there are some.
    """
    missing = [name for name in names if not (environ.get(name) or environ.get(f"{name}_FILE"))]
    if missing:
        are, them = ("is", "it") if len(missing) == 1 else ("are", "them")
        raise TopologyError(
            f"{', '.join(missing)} {are} not set; set {them} in .env.services, or <NAME>_FILE to a file with the value."
        )


def _value(environ: Mapping[str, str], name: str) -> str:
    value, file = environ.get(name, ""), environ.get(f"{name}_FILE", "")
    if value and file:
        raise TopologyError(f"{name} and {name}_FILE are both set; unset one of them.")
    if file:
        try:
            value = Path(file).read_text(encoding="utf-8").rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            raise TopologyError(f"{name}_FILE cannot be read ({type(error).__name__}); name a text file.") from None
        if not value:
            raise TopologyError(f"{name}_FILE names an empty file; write the value into it.")
    if "\n" in value:
        raise TopologyError(f"{name} holds more than one line; let it be the value and nothing else.")
    if PLACEHOLDER in value:
        raise TopologyError(f"{name} still holds the placeholder '{PLACEHOLDER}'; put a value of your own there.")
    return value


def write(path: Path, text: str, mode: int = MODE) -> None:
    """Write ``text`` to ``path`` atomically: a reader sees the old file or the new one.

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
