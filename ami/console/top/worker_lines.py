"""The workers as lines of a terminal: state, processes, a gauge of the memory, and what each runs."""

from collections.abc import Iterable

from rich.text import Text

from ami.console.quantities import size
from ami.console.top.cells import BAD, BOLD, FAINT, GOOD, WARN, Cell, Column, Glyphs, bar, head, line, row
from ami.console.top.quantities import short
from ami.queues import start_commands
from ami.telemetry.snapshots.shape import Snapshot, TaskFigures, WorkerFigures

STATE_STYLES = {"running": GOOD, "parked": WARN, "held": WARN, "stale": BAD, "disconnected": BAD}
GAUGE = 14


def lines(snapshot: Snapshot, width: int, glyphs: Glyphs) -> list[Text]:
    """Return the heading, and for each worker its row, why it is in its state, and its tasks."""
    columns = (
        Column("Worker", max(20, width - GAUGE - 50)),
        Column("State", 12),
        Column("Processes", 9, True),
        Column("Memory", GAUGE),
        Column("", 12),
        Column("Seen", 6, True),
    )
    found = [head(columns, glyphs)]
    for worker in sorted(snapshot.workers, key=lambda each: (each.host, each.node)):
        found.append(row(columns, _cells(worker, glyphs), glyphs))
        found += [line(f"    {words}", width, glyphs, WARN) for words in _why(worker)]
        found += [_task(task, width, glyphs) for task in worker.running]
    if len(found) == 1:
        found.append(line(_none(snapshot), width, glyphs, WARN))
    return found


def _none(snapshot: Snapshot) -> str:
    if snapshot.is_starting:
        return "Starting: no worker has reported itself yet."
    return f"No worker has reported itself: {start_commands.of_workers()}"


def _cells(worker: WorkerFigures, glyphs: Glyphs) -> tuple[Cell | str, ...]:
    used = share(worker)
    hold, is_full = worker.hold_percent, used is not None and used * 100 >= (worker.hold_percent or 101)
    drawn = "" if used is None else bar(used, GAUGE, glyphs, (hold and hold / 100,))
    text = glyphs.unseen if used is None else f"{100 * used:.0f}% {size(worker.memory_limit_bytes).replace(' ', '')}"
    return (
        Cell(worker.node, BOLD),
        Cell(worker.state, STATE_STYLES.get(worker.state, BAD)),
        f"{worker.children}/{worker.concurrency}",
        Cell(drawn, BAD if is_full else GOOD),
        text,
        short(round(worker.seen_seconds, 1), glyphs),
    )


def _why(worker: WorkerFigures) -> Iterable[str]:
    if worker.parked:
        yield f"parked by {worker.parked.by}: {worker.parked.why or 'no reason given'}"
    elif worker.why:
        yield worker.why
    if worker.closed_queues:
        yield f"does not consume {', '.join(worker.closed_queues)}"


def _task(task: TaskFigures, width: int, glyphs: Glyphs) -> Text:
    more = [short(task.running_seconds, glyphs), task.progress, f"{size(task.kib * 1024)}" if task.kib else ""]
    more += ["delivered again" if task.is_redelivered else "", task.id]
    text = f"    {task.task}  {'  '.join(each for each in more if each)}"
    return line(text, width, glyphs, FAINT)


def share(worker: WorkerFigures) -> float | None:
    """Return the share of its limit that a worker uses; None where it does not tell."""
    if worker.memory_used_bytes is None or not worker.memory_limit_bytes:
        return None
    return worker.memory_used_bytes / worker.memory_limit_bytes


def fullest(workers: Iterable[WorkerFigures]) -> tuple[float, str] | None:
    """Return the percentage and the node of the worker that is nearest to its limit."""
    known = [(100 * used, worker.node) for worker in workers if (used := share(worker)) is not None]
    return max(known, default=None)
