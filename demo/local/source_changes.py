"""Which Python files have changed since the last look."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("ami", "config", "processing_service")


class SourceChanges:
    """Compares the times of all Python files below ``folders``; a file that cannot be read counts as gone."""

    def __init__(self, root: Path = ROOT, folders: Sequence[str] = FOLDERS) -> None:
        self._root, self._folders = root, folders
        self._known = self._seen = self._times()

    def settled(self) -> list[str]:
        """Return what has changed, once nothing has between two looks: an editor or a merge writes several files."""
        now = self._times()
        is_settled, self._seen = now == self._seen, now
        if not is_settled or now == self._known:
            return []
        before, self._known = self._known, now
        return sorted(name for name in before.keys() | now.keys() if before.get(name) != now.get(name))

    def _times(self) -> dict[str, int]:
        return {os.path.relpath(path, self._root): when for path, when in self._files()}

    def _files(self) -> Iterator[tuple[str, int]]:
        for folder in self._folders:
            for parent, inner, names in os.walk(self._root / folder):
                inner[:] = [name for name in inner if not name.startswith((".", "__pycache__"))]
                for name in names:
                    if name.endswith(".py") and not name.startswith("."):
                        path = os.path.join(parent, name)
                        try:
                            yield path, os.stat(path).st_mtime_ns
                        except OSError:
                            continue
