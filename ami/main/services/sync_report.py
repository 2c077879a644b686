"""What a sync skipped, and which captures have unlikely times: counts by reason, with three examples each."""

from collections.abc import Iterable, Mapping
from typing import Any

EXAMPLES = 3
#: A report travels in messages between slices.
EXAMPLE_CHARACTERS = 120

#: Reason to {"count": number, "examples": paths}, as JSON.
Report = Mapping[str, Mapping[str, Any]]


def extended(report: Report, reasons: Iterable[tuple[str, str]]) -> Report:
    """Return the report with more (path, reason) pairs."""
    result = {reason: {**entry} for reason, entry in report.items()}
    for path, reason in reasons:
        entry = result.setdefault(reason, {"count": 0, "examples": []})
        entry["count"] += 1
        if len(entry["examples"]) < EXAMPLES:
            entry["examples"] = [*entry["examples"], _shown(path)]
    return result


def lines(report: Report, before: str) -> list[str]:
    """Return a sentence per reason, the most frequent first."""
    entries = sorted(report.items(), key=lambda item: (-item[1]["count"], item[0]))
    return [
        f"{before} {reason}: {entry['count']}, such as {', '.join(entry['examples'])}." for reason, entry in entries
    ]


def _shown(path: str) -> str:
    """Return the end of a path, with what cannot be stored or printed escaped."""
    text = path[-EXAMPLE_CHARACTERS:]
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in text)
