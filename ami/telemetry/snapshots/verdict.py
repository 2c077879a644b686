"""How a deployment is, in one line: the worst of its errors, its promises and its warnings."""

from dataclasses import dataclass

from ami.queues.diagnostics.finding import OF_BROKER
from ami.telemetry.snapshots.shape import Snapshot, WorkerFigures

ERROR, WARNING, STARTING, UNSEEN, OK = "error", "warning", "starting", "unseen", "ok"


@dataclass(frozen=True)
class Verdict:
    """``level`` is one of the constants, of which ``ERROR`` alone is a failure; ``words`` have all that is wrong."""

    level: str
    words: str

    @property
    def worst(self) -> str:
        """The gravest of the words."""
        return self.words.partition(", ")[0]


def judge(snapshot: Snapshot) -> Verdict:
    """Judge by the findings, the promises and the workers. What could not be looked at is never well."""
    found = [(level, words) for level, words in _parts(snapshot) if words]
    if not found:
        return Verdict(OK, "All is well")
    words = ", ".join(words for _, words in found)
    return Verdict(found[0][0], words[0].upper() + words[1:])


def _parts(snapshot: Snapshot) -> list[tuple[str, str]]:
    """Return what is wrong, the gravest first; without words where nothing is."""
    # A broken promise is a finding, too, and so is a broker that the snapshot did not see.
    shown = ("promise-broken", *OF_BROKER) if snapshot.unseen else ("promise-broken",)
    levels = [each.level for each in snapshot.findings if each.name not in shown]
    promised = [queue for queue in snapshot.queues if queue.promise != "none"]
    broken = sum(queue.promise == "broken" for queue in promised)
    all_workers = max(len({queue.service for queue in snapshot.queues}), len(snapshot.workers))
    is_idle = bool(all_workers) and not any(map(takes_tasks, snapshot.workers))
    nothing = f"nothing runs: 0 of {all_workers} workers"
    starting = f"starting: {sum(map(takes_tasks, snapshot.workers))} of {all_workers} workers"
    is_looked_at = snapshot.findings_at is not None
    return [
        (ERROR, nothing if is_idle and not snapshot.is_starting else ""),
        (ERROR, _count(len(snapshot.unseen), "source", " away")),
        (ERROR, _count(levels.count("error"), "error")),
        (ERROR, f"{broken} of {len(promised)} promises broken" if broken else ""),
        (WARNING, _count(levels.count("warning"), "warning")),
        (STARTING, starting if snapshot.is_starting else ""),
        (UNSEEN, "no figures yet" if not snapshot.queues else ""),
        (UNSEEN, "" if is_looked_at else "the live check has not run yet"),
        (UNSEEN, _count(levels.count("unseen"), "source", " not seen")),
    ]


def _count(number: int, what: str, more: str = "") -> str:
    return f"{number} {what}{'' if number == 1 else 's'}{more}" if number else ""


def takes_tasks(worker: WorkerFigures) -> bool:
    """Whether new tasks can begin on a worker."""
    return worker.state == "running" and worker.parked is None
