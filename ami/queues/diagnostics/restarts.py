"""Findings about workers that are started again and again, and about processes that the kernel killed."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ami.queues.diagnostics.finding import Finding

HOUR_SECONDS = 3600

#: A deploy or a lost host restarts a worker once or twice; from here on something ends it again and again.
MANY = 3


def restarted(answers: Mapping[str, Mapping[str, Any]]) -> Iterator[Finding]:
    """Yield findings from the ``starts`` that each worker answered to ``inspect stats``."""
    for worker, stats in sorted(answers.items()):
        starts = stats.get("starts")
        if starts is None:  # Without a governor, or of another version.
            continue
        if starts["restarts"] is None:
            yield Finding(
                "unseen",
                "restarts",
                f"Restarts of {worker} are not counted: it cannot write GOVERNOR_STATE_DIR, or another worker of its "
                "name does.",
                worker,
            )
        elif len(_recent(starts["restarts"])) >= MANY:
            yield Finding("warning", "restarts", _sentence(worker, starts["restarts"]), worker)
        if kills := starts.get("kernel_kills"):
            yield Finding(
                "warning",
                "kernel-kills",
                f"The kernel killed {kills} processes in the container of {worker} for want of memory since it "
                "started. Raise the container's memory, or see whether MEMORY_CEILING is 0.",
                worker,
            )


def _recent(restarts: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return [one for one in restarts if one["seconds_ago"] < HOUR_SECONDS]


def _sentence(worker: str, restarts: Sequence[Mapping[str, Any]]) -> str:
    recent = _recent(restarts)
    last = recent[-1]
    how = ", ".join(f"{name} {count}" for name, count in Counter(one["how"] for one in recent).most_common())
    tasks = [name for name, _ in Counter(task for one in recent for task in one["tasks"]).most_common(MANY)]
    ran = f" It was running {', '.join(tasks)}." if tasks else ""
    return (
        f"{worker} was started {len(recent)} times within an hour after unexpected ends ({how}), last "
        f"{_ago(last['seconds_ago'])}; {len(restarts)} times within a day.{ran} Look at its container's exit "
        "code and at its log before the start."
    )


def _ago(seconds: float) -> str:
    return f"{seconds / 60:.0f} min ago" if seconds >= 120 else f"{seconds:.0f} s ago"
