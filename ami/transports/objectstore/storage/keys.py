"""The rules for keys, and their spelling where only plain names are safe."""

from functools import lru_cache
from urllib.parse import quote, unquote

#: File systems end a name at 255 bytes; the rest is left to what an adapter adds.
NAME_BYTES = 200
#: S3 ends a whole key at 1024 bytes, its prefix included.
KEY_BYTES = 800


@lru_cache(maxsize=4096)
def quoted(key: str) -> str:
    """Return the key in letters, digits and ``_.-~%/`` alone, no name in it beginning with a dot.

    Raises:
        ValueError: a name between the slashes is empty, ``.`` or ``..``, holds a NUL or half a surrogate pair, or is
            longer than 200 bytes when quoted; or the whole is longer than 800.
    """
    spelled = "/".join(_name(name, key) for name in key.split("/"))
    if len(spelled) > KEY_BYTES:
        raise ValueError(f"the key {key[:100]!r}... takes {len(spelled)} bytes; {KEY_BYTES} are allowed")
    return spelled


def unquoted(spelled: str) -> str | None:
    """Return the key that `quoted` spells so; None for another program's object, whose name is not a quoted key."""
    key = unquote(spelled, errors="replace")
    try:
        return key if quoted(key) == spelled else None
    except ValueError:
        return None


def folder_of(prefix: str) -> str:
    """Return the folder that every key beginning with ``prefix`` is in, unquoted; empty for the top.

    Raises:
        ValueError: no key begins so.
    """
    folder, _, beginning = prefix.rpartition("/")
    if folder:
        quoted(folder)
    elif prefix.startswith("/"):
        raise ValueError(f"no key begins with {prefix!r}: a key has no leading slash")
    if beginning not in ("", ".", ".."):
        quoted(beginning)
    return folder


def _name(name: str, key: str) -> str:
    if name in ("", ".", ".."):
        raise ValueError(f"the key {key[:100]!r} has the name {name!r} in it, which is none")
    try:
        spelled = quote(name, safe="")
    except UnicodeEncodeError:
        raise ValueError(f"the key {key[:100]!r} is not text: it holds half a surrogate pair") from None
    if "%00" in spelled:
        raise ValueError(f"the key {key[:100]!r} holds a NUL")
    if spelled.startswith("."):
        spelled = f"%2E{spelled[1:]}"
    if len(spelled) > NAME_BYTES:
        raise ValueError(f"the name {name[:100]!r}... takes {len(spelled)} bytes; {NAME_BYTES} are allowed")
    return spelled
