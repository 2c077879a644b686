"""Reads settings from the environment and refuses wrong ones in one sentence, which never repeats a secret."""

import os
from pathlib import Path
from typing import NoReturn
from urllib.parse import urlsplit

import environ

from ami.topology.errors import did_you_mean
from ami.topology.topology import FALSE, TRUE

BASE_DIR = Path(__file__).resolve().parent.parent.parent

#: What `.env.example` writes wherever a secret belongs; production starts with none of them.
PLACEHOLDER = "change-me"

env = environ.Env()
if (BASE_DIR / ".env").exists():
    env.read_env(str(BASE_DIR / ".env"))


def refuse(sentence: str) -> NoReturn:
    """Stop the process before it does anything, with the setting, what is wrong, and the remedy."""
    raise SystemExit(f"Configuration refused: {sentence}")


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


def required(name: str, example: str) -> str:
    """Return a setting without which this place cannot run."""
    if value := os.environ.get(name, "").strip():
        refuse_placeholder(name)
        return value
    refuse(f"{name} is not set; set it to something like {example}. There is no default in production.")


def refuse_placeholder(name: str) -> None:
    """Refuse a secret that nobody has replaced since `.env.example` was copied."""
    if PLACEHOLDER in os.environ.get(name, ""):
        refuse(f"{name} still holds the placeholder '{PLACEHOLDER}' of .env.example; put a secret of your own there.")


def required_url(name: str, example: str, schemes: tuple[str, ...], *, password: bool = True) -> str:
    """Return a URL setting that names a host, one of ``schemes`` and, where asked, a password.

    No part of the value is repeated: a URL that is cut in the wrong place has its password in any part.
    """
    value = required(name, example)
    try:
        parts = urlsplit(value)
        scheme, host, secret, _ = parts.scheme, parts.hostname, parts.password, parts.port
    except ValueError:
        refuse(f"{name} is no URL; write it like {example}, special characters of the password percent-encoded.")
    if scheme not in schemes:
        refuse(f"{name} begins with none of {', '.join(f'{known}://' for known in schemes)}; write it like {example}.")
    if not host:
        refuse(f"{name} names no host; write it like {example}.")
    if password and not secret:
        refuse(f"{name} carries no password; services in production are never open. Write it like {example}.")
    return value
