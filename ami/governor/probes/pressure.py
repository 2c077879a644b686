"""How long tasks wait for memory (kernel: Documentation/accounting/psi.rst)."""

import errno
from pathlib import Path

from ami.governor.probes.cgroup import Cgroup


def some_avg10(root: Path = Path("/"), cgroup: Cgroup | None = None) -> float | None:
    """Return the percent of the last 10 s in which at least one task waited for memory, 0 to 100.

    It is the cgroup's own value where there is one (cgroup v2 only), else the host's; None where the kernel keeps
    neither.

    Raises:
        OSError: a file is there and cannot be read.
        ValueError: it has no ``some`` line with an ``avg10``.
    """
    folder = cgroup.path if cgroup is not None and cgroup.version == 2 else None
    for path in (folder and folder / "memory.pressure", root / "proc/pressure/memory"):
        text = _text(path) if path else None
        if path and text is not None:
            return _some_avg10(path, text)
    return None


def _text(path: Path) -> str | None:
    try:
        return path.read_text()
    except OSError as error:
        # A kernel built with PSI and booted without it shows the file and refuses to open it.
        if error.errno in (errno.ENOENT, errno.EOPNOTSUPP):
            return None
        raise


def _some_avg10(path: Path, text: str) -> float:
    for line in text.splitlines():
        kind, *columns = line.split() or [""]
        for column in columns if kind == "some" else ():
            name, _, value = column.partition("=")
            if name == "avg10":
                return float(value)
    raise ValueError(f"{path} has no 'some avg10': {text[:80]!r}")
