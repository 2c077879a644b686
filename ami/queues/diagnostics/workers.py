"""Findings about the workers, from what each answered to ``inspect stats``."""

from collections.abc import Iterator, Mapping
from typing import Any

from ami.celery.producer import Unconfirmed
from ami.queues import governors
from ami.queues.diagnostics import restarts
from ami.queues.diagnostics.finding import Finding
from ami.topology.topology import Topology

#: The most tasks that one finding names.
NAMED = 5


def answers(topology: Topology, app: Any) -> tuple[Mapping[str, Mapping[str, Any]], list[Finding]]:
    """Return the workers' statistics, and the findings about them.

    While an alarm blocks every publisher, `celery inspect` is blocked as well; the alarm is a finding of its own.
    """
    try:
        answers = governors.stats(app)
    except Unconfirmed:
        sentence = "Workers not inspected: the broker accepts no messages, so none can be sent to them."
        return {}, [Finding("unseen", "no-worker", sentence)]
    return answers, [*worker_findings(topology, answers), *restarts.restarted(answers)]


def worker_findings(topology: Topology, answers: Mapping[str, Mapping[str, Any]]) -> Iterator[Finding]:
    """Yield what is wrong with the workers, from what each answered to ``inspect stats``."""
    if not answers:
        yield Finding("error", "no-worker", f"No worker answered within {governors.INSPECT_SECONDS:.0f} s; start one.")
    for worker, stats in sorted(answers.items()):
        reported = stats.get("topology")
        if reported is None:
            yield Finding(
                "warning", "foreign-worker", f"{worker} reports no topology fingerprint; it runs a different version."
            )
        elif reported["fingerprint"] != topology.fingerprint:
            yield Finding(
                "error",
                "fingerprint",
                f"{worker} has topology {reported['fingerprint']} (routing {reported['routing']}), this publisher has "
                f"{topology.fingerprint} (routing {topology.routing}); deploy both from one version and environment.",
            )
    workers = governors.workers(answers)
    for governed in workers:
        yield from _governor(governed)
    for queue, names in governors.held_queues(workers).items():
        yield Finding(
            "error",
            "all-held",
            f"Every worker of {queue} is held: {', '.join(names)}. Free memory or add a machine; more workers on the "
            "same full one would be held, too.",
        )


def _governor(worker: governors.Worker) -> Iterator[Finding]:
    status = worker.governor or {}
    if worker.is_held:
        yield Finding("warning", "held", f"{worker.name} takes no tasks: {'; '.join(status['reasons'])}.")
    for fault in status.get("faults", ()):
        yield Finding("warning", "probe", f"{worker.name} ignores a probe that failed. {fault}")
    if suspects := status.get("suspects"):
        more = f" and {len(suspects) - NAMED} more" if len(suspects) > NAMED else ""
        yield Finding(
            "warning",
            "suspect",
            f"{worker.name} was killed without warning while running {', '.join(suspects[:NAMED])}{more}; its log "
            "names the task. A task that runs at a second such crash is buried.",
        )
