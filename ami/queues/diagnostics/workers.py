"""Findings about the workers, from what each answered to ``inspect stats``."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ami.celery.producer import Unconfirmed
from ami.queues import governors, start_commands
from ami.queues.diagnostics import restarts
from ami.queues.diagnostics.finding import Finding
from ami.topology.app import APP
from ami.topology.topology import Topology

#: The pool with children, which alone can have limits.
PREFORK = "prefork"

NO_ANSWER = f"No worker answered within {governors.INSPECT_SECONDS:.0f} s"
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
        yield Finding("error", "no-worker", f"{NO_ANSWER}; start them: '{start_commands.of_workers()}'.")
    for worker, stats in sorted(answers.items()):
        reported = stats.get("topology")
        if reported is None:
            yield Finding(
                "warning",
                "foreign-worker",
                f"{worker} reports no topology fingerprint; it runs a different version.",
                worker,
            )
        elif reported["fingerprint"] != topology.fingerprint:
            yield Finding(
                "error",
                "fingerprint",
                f"{worker} has topology {reported['fingerprint']} (routing {reported['routing']}), this publisher has "
                f"{topology.fingerprint} (routing {topology.routing}); deploy both from one version and environment.",
                worker,
            )
        if reported is not None:
            yield from _limits(topology, worker, stats)
    workers = governors.workers(answers)
    for governed in workers:
        yield from _governor(governed)
    for queue, names in governors.held_queues(workers).items():
        yield Finding(
            "error",
            "all-held",
            f"Every worker of {queue} is held: {', '.join(names)}. Free memory or add a machine; more workers on the "
            "same full one would be held, too.",
            queue,
        )


def _limits(topology: Topology, worker: str, stats: Mapping[str, Any]) -> Iterator[Finding]:
    queues = tuple(stats["topology"]["queues"])
    if len(queues) > 1:
        yield Finding(
            "warning",
            "several-queues",
            f"{worker} consumes {len(queues)} queues, {', '.join(queues)}: a burst in one delays the others. Start one "
            f"worker per queue, 'celery -A {APP} worker -Q QUEUE', and stop this one.",
            worker,
        )
    if lacking := _lacking(topology, queues, stats):
        rows = [row for row in topology.workloads if row.queue in queues]
        start = f"'{start_commands.of_worker(rows[0]) if rows else start_commands.of_workers()}'"
        yield Finding(
            "warning",
            "no-limits",
            f"{worker} runs without {', '.join(lacking)}: a task that hangs or grows is not stopped. Start it with "
            f"{start}, which has its row's limits.",
            worker,
        )


def _lacking(topology: Topology, queues: Sequence[str], stats: Mapping[str, Any]) -> list[str]:
    """Return the limits that a worker lacks, if a row of its queues has them: only prefork pools do."""
    pool = stats.get("pool")
    has_rows = any(row.pool == PREFORK for row in topology.workloads if row.queue in queues)
    if not has_rows or not isinstance(pool, Mapping):  # "N/A" without a pool.
        return []
    alias = pool["implementation"].partition(":")[0].rpartition(".")[2]
    if alias != PREFORK:
        return [f"limits, which its pool {alias} cannot have"]
    soft, hard = pool["timeouts"]
    lacks = {
        "a soft time limit": not soft,
        "a hard time limit": not hard,
        "recycling by tasks": pool["max-tasks-per-child"] in (None, "N/A"),
        "a memory limit": not stats["limits"]["max_memory_per_child"],
    }
    return [limit for limit, is_missing in lacks.items() if is_missing]


def _governor(worker: governors.Worker) -> Iterator[Finding]:
    status = worker.governor or {}
    if worker.is_held:
        sentence = f"{worker.name} takes no tasks: {'; '.join(status['reasons'])}."
        yield Finding("warning", "held", sentence, worker.name)
    for fault in status.get("faults", ()):
        sentence = f"{worker.name} ignores a probe that failed. {fault}"
        yield Finding("warning", "probe", sentence, worker.name)
    if suspects := status.get("suspects"):
        more = f" and {len(suspects) - NAMED} more" if len(suspects) > NAMED else ""
        yield Finding(
            "warning",
            "suspect",
            f"{worker.name} was killed without warning while running {', '.join(suspects[:NAMED])}{more}; its log "
            "names the task. A task that runs at a second such crash is buried.",
            worker.name,
        )
