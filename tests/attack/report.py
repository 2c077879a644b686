"""The findings: counts per part, and a request that reproduces each finding."""

import json
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

#: The kinds of findings. `deaths` are processes that ended, `excess` is too much memory or time for a request.
KINDS = ("errors", "leaks", "deaths", "excess")
MOST_KEPT_MIB = 64
MOST_SHOWN = 60
MOST_TEXT = 400


@dataclass
class Tally:
    """The counts of one part."""

    cases: int = 0
    errors: int = 0
    leaks: int = 0
    deaths: int = 0
    excess: int = 0
    kept_mib: float = 0.0
    peak_mib: float = 0.0
    seconds: float = 0.0


@dataclass
class Finding:
    """A finding, its count, and the first request that shows it."""

    part: str
    kind: str
    what: str
    repeat: str
    times: int = 1


@dataclass
class Report:
    """All counts and findings; thread-safe."""

    parts: dict[str, Tally] = field(default_factory=dict)
    findings: dict[tuple[str, str, str], Finding] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    kept_mib: float = 0.0
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def count(self, part: str, cases: int = 1) -> None:
        """Count cases of a part."""
        with self._lock:
            self.parts[part].cases += cases

    def found(self, part: str, kind: str, what: str, repeat: str) -> None:
        """Count a finding; equal ones of a part are shown once."""
        with self._lock:
            setattr(self.parts[part], kind, getattr(self.parts[part], kind) + 1)
            known = self.findings.setdefault((part, kind, what), Finding(part, kind, what, repeat[:MOST_TEXT], 0))
            known.times += 1

    def note(self, text: str) -> None:
        """Print a progress line and keep it."""
        self.notes.append(text)
        print(f"  {text}", file=sys.stderr, flush=True)

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Time a part."""
        self.parts.setdefault(name, Tally())
        began = time.monotonic()
        print(f"{name} ...", file=sys.stderr, flush=True)
        try:
            yield
        finally:
            tally = self.parts[name]
            tally.seconds += time.monotonic() - began
            counts = ", ".join(f"{getattr(tally, kind)} {kind}" for kind in KINDS)
            self.note(f"{name}: {tally.cases} cases in {tally.seconds:.0f} s, {counts}")

    @property
    def total(self) -> Tally:
        """The sum of all parts; kept memory is measured once over all of them."""
        sums = {name: sum(getattr(tally, name) for tally in self.parts.values()) for name in ("cases", *KINDS)}
        peak = max((tally.peak_mib for tally in self.parts.values()), default=0.0)
        return Tally(**sums, kept_mib=self.kept_mib, peak_mib=peak, seconds=sum(t.seconds for t in self.parts.values()))

    @property
    def passed(self) -> bool:
        """Whether there are no findings, and kept memory is below its limit."""
        total = self.total
        return not any(getattr(total, kind) for kind in KINDS) and total.kept_mib < MOST_KEPT_MIB

    def as_json(self) -> dict[str, Any]:
        """Return everything as plain values."""
        return {
            "passed": self.passed,
            "total": asdict(self.total),
            "parts": {name: asdict(tally) for name, tally in self.parts.items()},
            "findings": [asdict(finding) for finding in self.findings.values()][: MOST_SHOWN * 10],
            "notes": self.notes,
            "left_out": self.left_out,
        }

    def show(self) -> None:
        """Print the findings and the table."""
        shown = sorted(self.findings.values(), key=lambda finding: (finding.part, finding.kind, -finding.times))
        for finding in shown[:MOST_SHOWN]:
            print(f"{finding.part}: {finding.kind} x{finding.times}: {finding.what}\n    {finding.repeat}")
        if len(shown) > MOST_SHOWN:
            print(f"... and {len(shown) - MOST_SHOWN} more kinds of findings (see --json)")
        heads = ("cases", "5xx", "leaks", "deaths", "excess")
        print(f"\n{'part':<12}{''.join(f'{head:>8}' for head in heads)}{'MiB kept':>10}{'MiB peak':>10}{'s':>6}")
        for name, tally in [*self.parts.items(), ("total", self.total)]:
            counts = "".join(f"{getattr(tally, kind):>8}" for kind in ("cases", *KINDS))
            print(f"{name:<12}{counts}{tally.kept_mib:>10.1f}{tally.peak_mib:>10.1f}{tally.seconds:>6.0f}")
        print("Checks: pass" if self.passed else "Checks: fail", flush=True)

    def write(self, path: str) -> None:
        """Write everything as JSON to a file."""
        with open(path, "w", encoding="utf-8") as file:
            json.dump(self.as_json(), file, indent=1)
