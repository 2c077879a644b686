"""Ways in which the files of a queue are damaged."""

from collections.abc import Callable
from pathlib import Path


def flip(path: Path, at: int, bit: int = 0) -> None:
    """Change one bit of a file."""
    content = bytearray(path.read_bytes())
    content[at] ^= 1 << bit
    path.write_bytes(content)


def last_segment(folder: Path) -> Path:
    """Return the file of a queue's last segment."""
    return max(folder.glob("*.log"))


def first_segment(folder: Path) -> Path:
    """Return the file of a queue's first segment."""
    return min(folder.glob("*.log"))


#: By what was done, to a queue of several segments.
DAMAGE: dict[str, Callable[[Path], None]] = {
    "bit in a payload": lambda folder: flip(first_segment(folder), 120),
    "bit in a length": lambda folder: flip(first_segment(folder), 1),
    "bit in a high byte of a length": lambda folder: flip(first_segment(folder), 3, 7),
    "bit in a checksum": lambda folder: flip(first_segment(folder), 5),
    "bit in a line": lambda folder: flip(first_segment(folder), 12),
    "bit in the last segment": lambda folder: flip(last_segment(folder), 40),
    "first segment cut": lambda folder: first_segment(folder).write_bytes(b""),
    "last segment cut": lambda folder: last_segment(folder).write_bytes(b""),
    "last segment shorter": lambda folder: last_segment(folder).write_bytes(last_segment(folder).read_bytes()[:-1]),
    "first segment removed": lambda folder: first_segment(folder).unlink(),
    "last segment removed": lambda folder: last_segment(folder).unlink(),
    "middle segment removed": lambda folder: (folder / "00000002.log").unlink(),
    "last segment cut, without its tail": lambda folder: [last_segment(folder).write_bytes(b""), cut_tail(folder)],
    "all segments and the tail removed": lambda folder: [path.unlink() for path in _all(folder)],
}


def cut_tail(folder: Path) -> None:
    """Cut the tail to nothing."""
    (folder / "tail").write_bytes(b"")


def _all(folder: Path) -> list[Path]:
    return [*folder.glob("*.log"), *folder.glob("snapshot-*"), folder / "tail"]
