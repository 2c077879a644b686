"""Bodies above the web server's limits, and their content types."""

from collections.abc import Iterator

MIB = 1024**2
LOGIN = "/api/v2/auth/token/login/"
JSON = {"Content-Type": "application/json"}
FORM = {"Content-Type": "application/x-www-form-urlencoded"}
FILES = {"Content-Type": "multipart/form-data; boundary=x"}


def objects(size: int) -> bytes:
    """A list of small objects, each of which takes thirty times its text in memory."""
    return b"[" + b'{"":0},' * (size // 7 - 1) + b'{"":0}]'


HOSTILE = objects(15 * MIB)
FIELDS = b"a&" * (15 * MIB // 2)


def pieces() -> Iterator[bytes]:
    """The hostile body as chunks, without a length."""
    yield from (HOSTILE[start : start + MIB] for start in range(0, len(HOSTILE), MIB))
