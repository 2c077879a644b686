"""The counts that a check returns."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass


@dataclass
class Findings:
    """Numbers of rows that a check examined, repaired, and could not repair."""

    checked: int = 0
    fixed: int = 0
    unfixable: int = 0

    def as_dict(self) -> dict[str, int]:
        return asdict(self)

    @classmethod
    def total(cls, parts: Iterable[Mapping[str, int]]) -> "Findings":
        rows = list(parts)
        return cls(*(sum(row[name] for row in rows) for name in ("checked", "fixed", "unfixable")))
