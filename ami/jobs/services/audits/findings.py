"""What a check found."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass


@dataclass
class Findings:
    """How many things a check looked at, repaired, and could not repair."""

    checked: int = 0
    fixed: int = 0
    unfixable: int = 0

    def as_dict(self) -> dict[str, int]:
        """Return the counts by name."""
        return asdict(self)

    @classmethod
    def total(cls, parts: Iterable[Mapping[str, int]]) -> "Findings":
        """Return the sum."""
        rows = list(parts)
        return cls(*(sum(row[name] for row in rows) for name in ("checked", "fixed", "unfixable")))
