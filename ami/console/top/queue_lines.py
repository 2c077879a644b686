"""The queues as lines of a terminal, each with a line of words below it where there is room."""

from dataclasses import dataclass

from rich.text import Text

from ami.celery.shown_time import shown_time
from ami.console.top.cells import BAD, BOLD, FAINT, GOOD, WARN, Cell, Column, Glyphs, head, line, row
from ami.console.top.quantities import count, rate, short
from ami.telemetry.snapshots.shape import QueueFigures, Snapshot, Stop

#: From so many columns on the promise stands in the row, in words.
WIDE = 118
NARROW_WORDS, LEAST_WORDS = 7, 20
STYLES = {"kept": GOOD, "broken": BAD, "unknown": FAINT, "none": FAINT}


@dataclass(frozen=True)
class QueueLines:
    """A queue's row, and the line with its promise or its pause in words; ``is_needed``: shown before others'."""

    queue: str
    row: Text
    words: Text | None
    is_needed: bool


def lines(snapshot: Snapshot, width: int, glyphs: Glyphs, selected: str) -> tuple[Text, list[QueueLines]]:
    """Return the heading and each queue's lines."""
    columns = _columns(snapshot, width)
    shown = [_lines(queue, columns, width, glyphs, queue.queue == selected, snapshot) for queue in snapshot.queues]
    return head(columns, glyphs), shown


def _columns(snapshot: Snapshot, width: int) -> list[Column]:
    name = min(28, max([20, *(len(queue.queue) for queue in snapshot.queues)]))
    columns = [
        Column("", 1),
        Column("Queue", name),
        Column("Waiting", 7, True),
        Column("Runs", 4, True),
        Column("p95 / target", 14, True),
        Column("in/out/fail", 12, True),
        Column("Letters", 7, True),
    ]
    if width < WIDE:
        return [*columns, Column("Promise", NARROW_WORDS)]
    columns += [Column("Oldest", 7, True), Column("p95 run", 7, True), Column("Workers", 7, True)]
    words = width - sum(column.width + 1 for column in columns)
    return [*columns, Column("Promise", max(LEAST_WORDS, words))]


def _lines(
    queue: QueueFigures, columns: list[Column], width: int, glyphs: Glyphs, is_selected: bool, snapshot: Snapshot
) -> QueueLines:
    is_wide = width >= WIDE
    cells: list[Cell | str] = [
        Cell(glyphs.selected if is_selected else "", BOLD),
        Cell(queue.queue, BOLD if is_selected else ""),
        count(queue.waiting, glyphs),
        count(queue.running, glyphs),
        f"{short(queue.waits.p95, glyphs)} / {short(queue.wait_target_seconds, glyphs)}",
        "/".join(rate(queue.per_minute.get(name), glyphs) for name in ("started", "ended", "failed")),
        Cell(count(queue.dead_letters, glyphs), WARN if queue.dead_letters else ""),
    ]
    if is_wide:
        cells += [_oldest(queue, glyphs), short(queue.runs.p95, glyphs), str(len(queue.workers))]
    cells.append(_promise(queue, is_wide))
    words, needed = _words(queue, snapshot, is_wide, glyphs), bool(queue.paused or queue.promise == "broken")
    shown = line(f"    {words}", width, glyphs, WARN if queue.paused else FAINT) if words else None
    return QueueLines(queue.queue, row(columns, cells, glyphs), shown, needed or is_selected)


def _promise(queue: QueueFigures, is_wide: bool) -> Cell:
    if queue.paused:
        return Cell("paused", WARN)
    word = {"none": "no target"}.get(queue.promise, queue.promise) if is_wide else queue.promise
    words = f"{word}: {queue.promise_words}" if is_wide and queue.promise != "none" else word
    return Cell(words, STYLES.get(queue.promise, ""))


def _words(queue: QueueFigures, snapshot: Snapshot, is_wide: bool, glyphs: Glyphs) -> str:
    if queue.paused:
        return pause_words(queue.paused, snapshot, glyphs)
    if is_wide:
        return ""
    more = [f"{queue.promise}: {queue.promise_words}" if queue.promise != "none" else queue.promise_words]
    if queue.waiting:
        more.append(f"oldest {_oldest(queue, glyphs)}")
    if queue.consumers is not None:
        more.append(f"{queue.consumers} consumer{'' if queue.consumers == 1 else 's'}")
    return "; ".join(more)


def pause_words(stop: Stop, snapshot: Snapshot, glyphs: Glyphs) -> str:
    """Return by whom, since and until when, and why."""
    until = f", until {shown_time(stop.until)}" if stop.until else ""
    since = short(max(0.0, snapshot.taken_at - stop.since), glyphs)
    return f"paused by {stop.by} {since} ago{until}: {stop.why or 'no reason given'}"


def _oldest(queue: QueueFigures, glyphs: Glyphs) -> str:
    bound = f"{glyphs.at_most} " if queue.oldest_is_bound and queue.oldest_seconds else ""
    return f"{bound}{short(queue.oldest_seconds, glyphs)}"
