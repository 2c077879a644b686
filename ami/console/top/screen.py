"""The whole screen as lines: what there is most room for, and never more lines than the terminal has."""

import time
from collections.abc import Sequence
from dataclasses import replace

from rich.text import Text

from ami.console.top import letter_lines, overview_lines, queue_lines, worker_lines
from ami.console.top.cells import BAD, BOLD, FAINT, WARN, Glyphs, line
from ami.console.top.faults import away, is_away
from ami.console.top.queue_lines import QueueLines
from ami.console.top.session import FINDINGS, HELP, LETTERS, QUEUES, WORKERS, Session
from ami.telemetry.snapshots.shape import Snapshot

HINTS = {
    QUEUES: "↑↓ queue  p pause  r resume  l letters  w workers  f findings  ? help  q quit",
    LETTERS: "↑↓ cause  r replay  a all queues or one  Esc back  ? help  q quit",
    WORKERS: "↑↓ scroll  w or Esc back  ? help  q quit",
    FINDINGS: "↑↓ scroll  f or Esc back  ? help  q quit",
    HELP: "? or Esc back  q quit",
}
HELP_TEXT = (
    ("up, down, j, k", "select a queue or a cause; page up, page down: scroll"),
    ("p", "pause the selected queue: asks for the reason, then y"),
    ("r", "resume the selected queue; among letters: replay the cause"),
    ("l", "dead letters of the selected queue by cause; a: of all queues"),
    ("w", "workers: processes, memory, tasks"),
    ("f", "findings of the live check in full"),
    ("Esc", "back; q or Ctrl-C: quit"),
    ("", ""),
    ("p95 / target", "95 of 100 tasks of the last five minutes waited less"),
    ("in/out/fail", "tasks begun, ended and failed in the last minute"),
    ("promise", "kept: tasks begin within the target; unknown: nothing ran"),
    ("memory", "the mark is where a worker takes no more tasks"),
    ("a dash", "could not be read; the first line says why"),
    ("", ""),
    ("audit log", "pauses, resumes and replays are in it with your user name"),
)
#: The broker is given up after four seconds, and named.
SILENT_SECONDS = 6.0
LEAST_JOBS = 2


def lines(session: Session, width: int, height: int, glyphs: Glyphs) -> list[Text]:
    """Return exactly ``height`` lines of at most ``width`` cells."""
    snapshot = session.figures.snapshot
    top = _top(session, width, glyphs)
    bottom = _bottom(session, width, glyphs)
    room = max(0, height - len(top) - len(bottom))
    if snapshot is None and session.page not in (HELP, LETTERS):
        body = [] if session.figures.faults else [line("Reading ...", width, glyphs, FAINT)]
    else:
        body = _body(session, snapshot, width, room, glyphs)
    body = body[:room]
    found = [*top, *body, *(Text("") for _ in range(room - len(body))), *bottom][:height]
    for each in found:
        each.truncate(width)  # A terminal would go on in the next line.
    return found


def _top(session: Session, width: int, glyphs: Glyphs) -> list[Text]:
    """Return what is away, first of all, and the title."""
    figures = session.figures
    known = away(figures.snapshot) if figures.snapshot and not figures.faults else ()
    found = [line(each, width, glyphs, BAD) for each in (*figures.faults, *known)]
    silent = time.monotonic() - (figures.asked_at or float("inf"))
    if silent > SILENT_SECONDS:
        found.append(line(f"The database or the broker does not answer for {silent:.0f} s.", width, glyphs, BAD))
    if figures.snapshot is None:
        return [*found, Text("Queues", BOLD)]
    age = max(0.0, time.monotonic() - figures.read_at)
    return [*found, overview_lines.title(figures.snapshot, age, width, glyphs)]


def _bottom(session: Session, width: int, glyphs: Glyphs) -> list[Text]:
    if session.prompt:
        question, effect = session.prompt.question, session.prompt.lever.effect
        # The end of a long reason is where it is typed.
        shown = question if len(question) < width else glyphs.more + question[-(width - 2) :]
        return [line(effect, width, glyphs, WARN), line(f"{shown}_", width, glyphs, BOLD)]
    hints = HINTS[session.page] if glyphs.full != "#" else HINTS[session.page].replace("↑↓", "j k")
    return [line(session.message, width, glyphs, session.message_style), line(hints, width, glyphs, FAINT)]


def _body(session: Session, snapshot: Snapshot | None, width: int, room: int, glyphs: Glyphs) -> list[Text]:
    if session.page == HELP:
        return _scrolled(session, [line(f"{key:<15} {text}", width, glyphs) for key, text in HELP_TEXT], room)
    if session.page == LETTERS:
        return _letters(session, width, room, glyphs)
    if snapshot is None:
        return []
    if session.page == WORKERS:
        return _scrolled(session, worker_lines.lines(snapshot, width, glyphs), room)
    if session.page == FINDINGS:
        return _scrolled(session, overview_lines.whole_findings(snapshot, width), room)
    chosen = session.selected_queue
    return overview(snapshot, width, room, glyphs, chosen.queue if chosen else "")


def _scrolled(session: Session, shown: list[Text], room: int) -> list[Text]:
    session.scroll = min(session.scroll, max(0, len(shown) - room))
    return shown[session.scroll : session.scroll + room]


def _letters(session: Session, width: int, room: int, glyphs: Glyphs) -> list[Text]:
    where = session.letters_of or "all queues"
    title = line(f"Dead letters of {where}, by cause", width, glyphs, BOLD)
    if session.figures.letters is None or session.figures.letters_of != session.letters_of:
        return [title, line("Reading ...", width, glyphs, FAINT)]
    chosen = session.selected_cause
    running = letter_lines.replays(session.figures.replays, width, glyphs)
    shown = letter_lines.lines(session.causes, width, glyphs, chosen.cause if chosen else "", where)
    place = 1 + (list(session.causes).index(chosen) if chosen else 0)
    room -= 1 + len(running)
    return [title, *running, *_window(shown, place, room)]


def _window(shown: list[Text], place: int, room: int) -> list[Text]:
    """Return the heading and the lines around ``place``, with the one below it."""
    if len(shown) <= room:
        return shown
    first = max(1, min(place - room // 2, len(shown) - room + 1))
    return [shown[0], *shown[first : first + room - 1]]


def overview(snapshot: Snapshot, width: int, room: int | None, glyphs: Glyphs, selected: str) -> list[Text]:
    """Return findings, queues, workers and jobs in ``room`` lines; all of them where it is None."""
    heading, queues = queue_lines.lines(snapshot, width, glyphs, selected)
    if room is None:
        others = replace(snapshot, findings=tuple(each for each in snapshot.findings if not is_away(each)))
        parts = [
            overview_lines.whole_findings(others, width),
            [heading, *_queues(queues, len(queues))],
            worker_lines.lines(snapshot, width, glyphs),
            overview_lines.jobs(snapshot, width, glyphs),
        ]
        return _spaced(parts, len(parts))
    needed = sum(each.is_needed and each.words is not None for each in queues)
    left = room - (1 + len(queues) + needed + 1)
    most_jobs = max(1, min(len(snapshot.jobs), max(LEAST_JOBS, left // 3)))
    most_findings = max(1, min(len(snapshot.findings), left - most_jobs))
    left -= most_jobs + most_findings
    words = max(0, needed + min(0, left)) if left < 0 else needed + left
    rows = _around(queues, selected, room - most_findings - most_jobs - 2)
    shown = _queues(rows, words)
    left = room - (len(shown) + 2 + most_jobs + most_findings)
    parts = [
        overview_lines.findings(snapshot, width, glyphs, most_findings),
        [heading, *shown],
        [overview_lines.workers(snapshot, width, glyphs), *overview_lines.jobs(snapshot, width, glyphs, most_jobs)],
    ]
    return _spaced(parts, max(0, left))


def _around(queues: Sequence[QueueLines], selected: str, room: int) -> Sequence[QueueLines]:
    """Return the queues around the selected one, where they do not all fit."""
    room = max(1, room)
    place = next((number for number, each in enumerate(queues) if each.queue == selected), 0)
    first = max(0, min(place - room // 2, len(queues) - room))
    return queues[first : first + room]


def _queues(queues: Sequence[QueueLines], most_words: int) -> list[Text]:
    """Return the rows with as many lines of words as there is room for, those that are needed first."""
    by_need = sorted((each for each in queues if each.words), key=lambda each: not each.is_needed)
    worded = {each.queue for each in by_need[:most_words]}
    found: list[Text] = []
    for each in queues:
        found.append(each.row)
        if each.words is not None and each.queue in worded:
            found.append(each.words)
    return found


def _spaced(parts: Sequence[list[Text]], spaces: int) -> list[Text]:
    """Return the parts with empty lines between them, as many as there is room for."""
    found: list[Text] = []
    for number, part in enumerate(parts):
        if number and number <= spaces:
            found.append(Text(""))
        found += part
    return found
