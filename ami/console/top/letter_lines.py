"""Dead letters by cause as lines of a terminal, and the replays that run."""

from collections.abc import Sequence
from datetime import UTC, datetime

from rich.text import Text

from ami.console.top.cells import BOLD, FAINT, Cell, Column, Glyphs, head, line, row
from ami.console.top.quantities import count, short
from ami.queues.letters.found import Group
from ami.queues.models import Replay


def lines(groups: Sequence[Group], width: int, glyphs: Glyphs, selected: str, where: str) -> list[Text]:
    """Return the heading and a line for each cause; below the selected one what is known of it."""
    columns = (
        Column("", 1),
        Column("Letters", 7, True),
        Column("Back", 5, True),
        Column("Last", 5, True),
        Column("Task", 24),
        Column("Why", max(20, width - 47)),
    )
    found = [head(columns, glyphs)]
    now = datetime.now(UTC)
    for group in groups:
        is_selected = group.cause == selected
        cells = (
            Cell(glyphs.selected if is_selected else "", BOLD),
            count(group.letters, glyphs),
            count(group.came_back, glyphs) if group.came_back else "",
            short(max(0.0, (now - group.last_at).total_seconds()), glyphs),
            Cell(group.task.rpartition(".")[2] or "no task", BOLD if is_selected else ""),
            f"{group.exception}: {group.message}" if group.exception else group.message,
        )
        found.append(row(columns, cells, glyphs))
        if is_selected:
            more = f"    {group.task}  {group.place}  {group.cause[:12]}"
            found.append(line(more, width, glyphs, FAINT))
    if not groups:
        found.append(line(f"No dead letter of {where}.", width, glyphs, FAINT))
    return found


def replays(running: Sequence[Replay], width: int, glyphs: Glyphs) -> list[Text]:
    """Return how far the replays are that run."""
    return [line(f"Replay {each.pk}: {each.done} of {each.total} letters", width, glyphs) for each in running]
