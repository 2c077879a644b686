"""Reads RabbitMQ's account from the environment or from files, and writes the definitions file."""

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

from ami.environment.secret_files import PLACEHOLDER
from ami.topology.definitions import Account
from ami.topology.errors import TopologyError

#: RabbitMQ reads the file as another user. It contains a salted hash, not the password.
MODE = 0o644


def account(environ: Mapping[str, str]) -> Account:
    """Return RABBITMQ_USER, RABBITMQ_PASSWORD and RABBITMQ_VHOST; RABBITMQ_..._FILE may name a file with the value.

    Raises:
        TopologyError: a value is missing, given twice or still the placeholder; the message contains no value.
    """
    return Account(*(_value(environ, f"RABBITMQ_{name}") for name in ("USER", "PASSWORD", "VHOST")))


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
    if not value:
        raise TopologyError(f"{name} is not set; set it, or {name}_FILE to a file that holds it.")
    if "\n" in value:
        raise TopologyError(f"{name} holds more than one line; let it be the value and nothing else.")
    if PLACEHOLDER in value:
        raise TopologyError(f"{name} still holds the placeholder '{PLACEHOLDER}'; put a value of your own there.")
    return value


def write(path: Path, text: str) -> None:
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
                os.fchmod(file.fileno(), MODE)
                os.fsync(file.fileno())
            os.replace(name, path)
        except BaseException:
            os.unlink(name)
            raise
    except OSError as error:
        raise TopologyError(f"{path} cannot be written ({error.strerror}); name a file in a writable folder.") from None
