"""Checks the demo's options before any service is started."""

from __future__ import annotations

import argparse
from pathlib import Path
from urllib.parse import urlsplit

from kombu import Connection

from demo import brokers
from demo.environment import BESIDE

#: What the folder of an earlier run has; the demo empties no other one.
OWN = {"media", "journal"}


def broker(value: str) -> str:
    """Return ``value`` if it is a valid broker, with a readable address.

    Raises:
        argparse.ArgumentTypeError: it is not; the message has no part of the URL, which may hold a password.
    """
    choice = brokers.broker(value)
    if "://" not in choice:
        return choice
    try:
        urlsplit(choice).port  # noqa: B018 - raises for anything but a number
        Connection(choice).transport  # noqa: B018 - imports the library, connects to nothing
    except (ImportError, NameError):
        scheme = choice.partition(":")[0]
        raise argparse.ArgumentTypeError(
            f"{scheme}:// needs a library that is not installed; use {brokers.CHOICES}."
        ) from None
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"the URL has no readable host and port; use {brokers.CHOICES}, special characters of the password "
            "percent-encoded."
        ) from None
    return choice


def refuse_wrong(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """End the process with one sentence if an option cannot be used."""
    if options.frames < 1:
        parser.error(f"argument --frames: {options.frames} draws nothing; give 1 or more.")
    if options.captures and (fault := _captures_fault(options.captures)):
        parser.error(f"argument --captures: {options.captures} {fault}")
    if fault := _folder_fault(options.folder):
        parser.error(f"argument --folder: {options.folder} {fault}")


def _captures_fault(folder: Path) -> str:
    if not folder.is_dir():
        return "is not a folder; name one with a subfolder of photographs per station."
    if not any(path.is_file() for path in folder.rglob("*")):
        return "has no files; name a folder with a subfolder of photographs per station."
    return ""


def _folder_fault(folder: Path) -> str:
    try:
        names = {path.name for path in folder.iterdir()} if folder.exists() else set()
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        return f"cannot be used ({error.strerror}); name a folder that this user may write to."
    if names - BESIDE and not names >= OWN:
        return "holds files of others, and the demo empties its folder; name a new one."
    return ""
