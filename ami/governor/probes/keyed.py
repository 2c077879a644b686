"""Kernel files of one name and one number a line."""

from pathlib import Path


def read(path: Path) -> dict[str, int]:
    """Return name to number, the unit as in the file: ``anon 4096`` (memory.stat), ``MemTotal:  8 kB`` (meminfo).

    Raises:
        OSError: the file cannot be read.
        ValueError: a line is not a name and a whole number.
    """
    found = {}
    for line in path.read_text().splitlines():
        words = line.split()
        if len(words) < 2 or not words[1].isdecimal():
            raise ValueError(f"{path} has the line {line!r}, which is not a name and a number")
        found[words[0].rstrip(":")] = int(words[1])
    return found


def pick(path: Path, *names: str) -> list[int]:
    """Return the numbers of ``names`` in their order.

    Raises:
        OSError: the file cannot be read.
        ValueError: a name is missing.
    """
    found = read(path)
    missing = [name for name in names if name not in found]
    if missing:
        raise ValueError(f"{path} has no {', '.join(missing)}")
    return [found[name] for name in names]
