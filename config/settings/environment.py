"""Reads settings from the environment and refuses wrong ones in one sentence, which never repeats a secret."""

import os
import re
from ipaddress import ip_network
from pathlib import Path
from typing import NoReturn
from urllib.parse import urlsplit

import environ

from ami.topology.containers import AS_FILES, PLACEHOLDER
from ami.topology.errors import did_you_mean
from ami.topology.topology import FALSE, TRUE

BASE_DIR = Path(__file__).resolve().parent.parent.parent

#: What ``<NAME>_FILE`` may give as the path of a file, as Docker and Kubernetes mount secrets.
SECRETS = (*AS_FILES, "FLOWER_BASIC_AUTH")
SECRET_BYTES = 64 * 1024

#: A name with a letter in it: what looks like a number is an address, or a mistake.
HOST_NAME = re.compile(r"(?=.*[a-z_])[a-z0-9_]([a-z0-9_.-]*[a-z0-9_])?")

env = environ.Env()


def refuse(sentence: str) -> NoReturn:
    """Stop the process before it does anything, with the setting, what is wrong, and the remedy."""
    raise SystemExit(f"Configuration refused: {sentence}")


def read_secrets() -> None:
    """Put the content of each file that a ``<NAME>_FILE`` names into ``<NAME>``, once, before anything reads it.

    The environment has it then, since boto and Flower read theirs there; processes that this one starts inherit it.
    ``<NAME>_FILE`` is left empty: removed, those processes would read it from ``.env`` again.
    """
    for name in SECRETS:
        if path := os.environ.get(f"{name}_FILE", ""):
            if os.environ.get(name, ""):
                refuse(f"{name} and {name}_FILE are both set; leave one of them empty.")
            os.environ[name] = _secret(f"{name}_FILE", path)
            os.environ[f"{name}_FILE"] = ""


def _secret(variable: str, path: str) -> str:
    """Return the text of a file without the end of its last line; anything else stops the process."""
    if not path.startswith("/"):  # Perhaps the secret itself: it is not repeated.
        refuse(f"{variable} is not an absolute path; write it like /run/secrets/name, and the secret into that file.")
    what = f"{variable} is '{path}', which"
    try:
        if not Path(path).is_file():
            refuse(f"{what} is not a file; mount the secret there or correct the path.")
        with Path(path).open("rb") as file:
            content = file.read(SECRET_BYTES + 1)
    except OSError as error:
        refuse(f"{what} cannot be read ({error.strerror}); let the user of this process read it.")
    if len(content) > SECRET_BYTES:
        refuse(f"{what} is larger than {SECRET_BYTES // 1024} KiB; let it hold the value and nothing else.")
    try:
        secret = content.decode().rstrip("\r\n")
    except UnicodeDecodeError:
        refuse(f"{what} is not UTF-8; write the value as plain text.")
    if not secret.strip() or "\0" in secret:
        refuse(f"{what} holds no text; write the value into it.")
    if PLACEHOLDER in secret:
        refuse(f"{what} still holds the placeholder '{PLACEHOLDER}' of .env.example; put a secret of your own there.")
    return secret


if (BASE_DIR / ".env").exists():
    env.read_env(str(BASE_DIR / ".env"))
read_secrets()


def whole_number(name: str, default: int, low: int, high: int) -> int:
    """Return an integer setting; anything else than a number between the bounds stops the process."""
    raw = os.environ.get(name, "")
    try:
        value = int(raw) if raw else default
    except ValueError:
        value = low - 1
    if not low <= value <= high:
        refuse(f"{name} is '{raw}'; it must be a whole number from {low} to {high} (default {default}).")
    return value


def on_or_off(name: str, default: bool) -> bool:
    """Return a switch; a misspelt one stops the process instead of counting as off."""
    raw = os.environ.get(name, "").strip().lower()
    if raw not in TRUE + FALSE:
        refuse(f"{name} is '{raw}'; use 1 or 0 (default {int(default)}).")
    return raw in TRUE if raw else default


def one_of(name: str, default: str, known: tuple[str, ...]) -> str:
    """Return a setting that has few possible values."""
    value = os.environ.get(name, "") or default
    if value not in known:
        refuse(f"{name} is '{value}'; use one of {', '.join(known)}.{did_you_mean(value, known)}")
    return value


def endpoints(name: str) -> tuple[str, ...]:
    """Return a list of host names, addresses and networks, separated by commas; a malformed one stops the process."""
    entries = tuple(entry.strip().lower() for entry in os.environ.get(name, "").split(",") if entry.strip())
    for entry in entries:
        if _is_address(entry) or HOST_NAME.fullmatch(entry):
            continue
        refuse(
            f"{name} has the entry '{entry}', which is neither a host name nor an address nor a network; write it like "
            "minio.example.org, 127.0.0.1 or 10.0.0.0/8, without scheme and port."
        )
    return entries


def _is_address(entry: str) -> bool:
    try:
        ip_network(entry)
    except ValueError:
        return False
    return True


def required(name: str, example: str) -> str:
    """Return a setting without which this place cannot run."""
    if value := os.environ.get(name, "").strip():
        refuse_placeholder(name)
        return value
    refuse(f"{name} is not set; set it to something like {example}. There is no default in production.")


def refuse_placeholder(name: str) -> None:
    """Refuse a secret that still has the placeholder of `.env.example`."""
    if PLACEHOLDER in os.environ.get(name, ""):
        refuse(f"{name} still holds the placeholder '{PLACEHOLDER}' of .env.example; put a secret of your own there.")


def required_url(
    name: str, example: str, schemes: tuple[str, ...], *, password: bool = True, several: bool = False
) -> str:
    """Return a URL setting that names a host, one of ``schemes`` and, where asked, a password.

    ``several``: it may be a list of such URLs, separated by semicolons. No part of the value is repeated: a URL that is
    cut in the wrong place has its password in any part.
    """
    value = required(name, example)
    for each in value.split(";") if several else [value]:
        _refuse_incomplete(name, each, example, schemes, password)
    return value


def _refuse_incomplete(name: str, value: str, example: str, schemes: tuple[str, ...], password: bool) -> None:
    try:
        parts = urlsplit(value)
        scheme, host, secret, _ = parts.scheme, parts.hostname, parts.password, parts.port
    except ValueError:
        refuse(f"{name} is not a URL; write it like {example}, special characters of the password percent-encoded.")
    if scheme not in schemes:
        refuse(f"{name} begins with none of {', '.join(f'{known}://' for known in schemes)}; write it like {example}.")
    if not host:
        refuse(f"{name} names no host; write it like {example}.")
    if password and not secret:
        refuse(f"{name} carries no password; services in production are never open. Write it like {example}.")
