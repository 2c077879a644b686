"""The head of the overview, its findings, a line about the workers, and the running jobs."""

from collections import Counter

from rich.text import Text

from ami.console.quantities import total
from ami.console.top.cells import BAD, BOLD, FAINT, GOOD, WARN, Cell, Column, Glyphs, bar, line, plain, row
from ami.console.top.faults import is_away
from ami.console.top.quantities import count, short
from ami.console.top.worker_lines import STATE_STYLES, fullest
from ami.telemetry.snapshots import verdict
from ami.telemetry.snapshots.shape import FindingFigures, JobFigures, Snapshot

LEVELS = {
    "error": ("Error", BAD),
    "warning": ("Warning", WARN),
    "starting": ("Starting", FAINT),
    "unseen": ("Not seen", FAINT),
}
VERDICTS = {
    verdict.ERROR: BAD,
    verdict.WARNING: WARN,
    verdict.STARTING: FAINT,
    verdict.UNSEEN: FAINT,
    verdict.OK: GOOD,
}
BAR = 10


def title(snapshot: Snapshot, age_seconds: float, width: int, glyphs: Glyphs) -> Text:
    """Return the first line: the verdict, the totals, beat, and how old the figures are."""
    found = verdict.judge(snapshot)
    shown = Text("Queues ", style=BOLD, no_wrap=True)
    waiting = total(queue.waiting for queue in snapshot.queues)
    running = sum(queue.running for queue in snapshot.queues)
    letters = total(queue.dead_letters for queue in snapshot.queues)
    totals = f"  {count(waiting, glyphs)} waiting, {running} running, {count(letters, glyphs)} letters"
    old = f"{short(round(age_seconds, 1), glyphs)} old"
    room = width - shown.cell_len - len(old) - 1
    words = found.words if len(found.words) + len(totals) <= room else found.worst
    if len(words) + len(totals) > room:
        totals = totals.rpartition(",")[0]  # Each queue's row has its letters.
    shown.append(words, VERDICTS[found.level])
    shown.append(totals, "not bold")
    beat = f"beat {_beat(snapshot, age_seconds, glyphs)}"
    room = width - shown.cell_len - len(old) - 2
    if room >= len(beat) + 2:
        shown.append(f"  {beat}", "not bold")
    shown.append(" " * max(1, width - shown.cell_len - len(old)))
    shown.append(old, BAD if age_seconds > 10 else "not bold dim")
    shown.truncate(width)
    return shown


def _beat(snapshot: Snapshot, age_seconds: float, glyphs: Glyphs) -> str:
    if not snapshot.beats:
        return "is starting" if snapshot.is_starting else "is not running"
    ticked = max((beat.last_tick_at or 0.0 for beat in snapshot.beats), default=0.0)
    return (
        f"ticked {short(max(0.0, snapshot.taken_at - ticked) + age_seconds, glyphs)} ago"
        if ticked
        else "has not ticked"
    )


def findings(snapshot: Snapshot, width: int, glyphs: Glyphs, most: int | None = None) -> list[Text]:
    """Return a line for each finding, the gravest first; the last says how many are left.

    What is away is said above the title.
    """
    shown = [_finding(finding, width, glyphs) for finding in snapshot.findings if not is_away(finding)]
    if not shown:
        others = "other " if snapshot.findings or snapshot.unseen else ""
        return [line(f"No {others}findings.", width, glyphs, FAINT)]
    if most is None or len(shown) <= most:
        return shown
    left = len(shown) - most + 1
    more = "more " if most > 1 else ""
    return [*shown[: most - 1], line(f"{left} {more}findings: f", width, glyphs, WARN)]


def _finding(finding: FindingFigures, width: int, glyphs: Glyphs) -> Text:
    word, style = LEVELS.get(finding.level, (finding.level, ""))
    columns = (Column("", 8), Column("", max(10, width - 9)))
    return row(columns, (Cell(word, style), finding.sentence), glyphs)


def whole_findings(snapshot: Snapshot, width: int) -> list[Text]:
    """Return the findings in full, over several lines each, with the name that the handbook has a row for."""
    if not snapshot.findings:
        return [Text("No other findings." if snapshot.unseen else "No findings.")]
    found: list[Text] = []
    for finding in snapshot.findings:
        word, style = LEVELS.get(finding.level, (finding.level, ""))
        found.append(Text.assemble((word, style), (f"  {plain(finding.name)}", BOLD)))
        found += _wrapped(plain(finding.sentence), width - 2)
    return found


def _wrapped(text: str, width: int) -> list[Text]:
    lines, current = [], ""
    for word in text.split():
        if current and len(current) + 1 + len(word) > width:
            lines.append(current)
            current = word
        else:
            current = f"{current} {word}".strip()
    return [Text(f"  {each[:width]}", no_wrap=True) for each in [*lines, current] if each]


def workers(snapshot: Snapshot, width: int, glyphs: Glyphs) -> Text:
    """Return how many workers are in which state, and the memory of the fullest."""
    if not snapshot.workers:
        return line("No worker has reported itself.", width, glyphs, WARN)
    states = Counter(worker.state for worker in snapshot.workers)
    words = ", ".join(f"{number} {state}" for state, number in states.most_common())
    full = fullest(snapshot.workers)
    memory = f"; fullest memory {full[0]:.0f}% ({full[1]})" if full else ""
    is_good = all(STATE_STYLES.get(state) == GOOD for state in states)
    return line(f"Workers: {words}{memory}", width, glyphs, "" if is_good else WARN)


def jobs(snapshot: Snapshot, width: int, glyphs: Glyphs, most: int | None = None) -> list[Text]:
    """Return a line with a bar for each running job."""
    if not snapshot.jobs:
        return [line("No job is running.", width, glyphs, FAINT)]
    shown = snapshot.jobs if most is None or len(snapshot.jobs) <= most else snapshot.jobs[: most - 1]
    found = [_job(job, width, glyphs) for job in shown]
    if left := len(snapshot.jobs) - len(shown):
        found.append(line(f"{left} more jobs", width, glyphs, FAINT))
    return found


def _job(job: JobFigures, width: int, glyphs: Glyphs) -> Text:
    pace = f"{job.images_per_second:.1f}/s" if job.images_per_second is not None else ""
    left = f"{short(job.left_seconds, glyphs)} left" if job.left_seconds is not None else ""
    failed = f"{job.failed_images} failed" if job.failed_images else ""
    name = max(16, width - BAR - 44)
    columns = (
        Column("", name),
        Column("", 10),
        Column("", BAR),
        Column("", 4, True),
        Column("", 7, True),
        Column("", 8, True),
        Column("", 9, True),
    )
    cells = (
        f"#{job.pk} {job.name} ({job.project})",
        job.stage or job.status,
        Cell(bar(job.done, BAR, glyphs), GOOD),
        f"{100 * job.done:.0f}%",
        pace,
        left,
        Cell(failed, WARN),
    )
    return row(columns, cells, glyphs)
