"""Validation of relative paths: below a folder or prefix, without a way out of it."""

import unicodedata
from urllib.parse import unquote

#: Percent-encoding may be nested; it is decoded this many times.
ROUNDS = 5


def problem_of(path: str) -> str:
    """Return why ``path`` is not a plain relative path with ``/`` as separator; empty if it is one.

    Percent-encoded dots are refused too: some servers decode a key before they resolve it.
    """
    if path.startswith("/"):
        return "Must be relative; remove the '/' at the beginning."
    if not all(char.isprintable() or unicodedata.category(char) == "Zs" for char in path):
        return "Must not hold control characters."
    for text in (path, _decoded(path)):
        if "\\" in text:
            return "Must not hold a backslash; write '/' between folders."
        if any(part in {".", ".."} for part in text.split("/")):
            return "Must not hold '.' or '..' as a folder."
    return ""


def _decoded(path: str) -> str:
    for _ in range(ROUNDS):
        decoded = unquote(path)
        if decoded == path:
            break
        path = decoded
    return path
