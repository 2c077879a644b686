"""Relative paths: which texts name something below a folder or a prefix, and cannot leave it."""

from urllib.parse import unquote

#: An encoded dot may be encoded again; whatever is not plain text after so many rounds is refused as it stands.
ROUNDS = 5


def problem_of(path: str) -> str:
    """Say why ``path`` is not a plain relative path with ``/`` between its parts; empty when it is one.

    Dots that are percent-encoded are refused, too: some servers decode a key before they resolve it.
    """
    if path.startswith("/"):
        return "Must be relative; remove the '/' at the beginning."
    if not path.isprintable():
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
