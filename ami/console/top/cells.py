"""Lines of a terminal: cells of a fixed width, and nothing in them that a terminal would obey."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich.cells import cell_len, set_cell_size
from rich.text import Text

GOOD, BAD, WARN, FAINT, BOLD = "green", "bold red", "yellow", "dim", "bold"


@dataclass(frozen=True)
class Glyphs:
    """What a screen draws with, one cell each."""

    full: str
    empty: str
    mark: str
    selected: str
    unseen: str
    more: str
    at_most: str


UNICODE = Glyphs("█", "░", "┃", "▸", "–", "…", "≤")
ASCII = Glyphs("#", ".", "|", ">", "-", "~", "<")


def glyphs_for(encoding: str | None) -> Glyphs:
    """Return what an encoding can write."""
    try:
        "".join(vars(UNICODE).values()).encode(encoding or "ascii")
    except (LookupError, UnicodeEncodeError):
        return ASCII
    return UNICODE


@dataclass(frozen=True)
class Column:
    """A heading over cells of ``width``; numbers stand on the right."""

    label: str
    width: int
    is_right: bool = False


@dataclass(frozen=True)
class Cell:
    """Text with a style of Rich's."""

    text: str
    style: str = ""


def plain(text: str) -> str:
    """Return a text on one line and without control characters: a job's name may hold an escape sequence."""
    return "".join(each if each.isprintable() else " " for each in text)


def cut(text: str, width: int, glyphs: Glyphs) -> str:
    """Return a text of at most so many cells; its end is marked where it was longer."""
    text = plain(text)
    if cell_len(text) <= width:
        return text
    return set_cell_size(text, max(0, width - 1)).rstrip() + glyphs.more if width > 0 else ""


def row(columns: Sequence[Column], cells: Iterable[Cell | str], glyphs: Glyphs, style: str = "") -> Text:
    """Return one line, a space between its cells."""
    line = Text(style=style, no_wrap=True)
    for number, (column, cell) in enumerate(zip(columns, cells, strict=True)):
        cell = Cell(cell) if isinstance(cell, str) else cell
        text = cut(cell.text, column.width, glyphs)
        room = " " * (column.width - cell_len(text))
        line.append(" " if number else "")
        line.append(room + text if column.is_right else text + room, cell.style)
    return line


def head(columns: Sequence[Column], glyphs: Glyphs) -> Text:
    return row(columns, (column.label for column in columns), glyphs, "underline")


def line(text: str, width: int, glyphs: Glyphs, style: str = "") -> Text:
    """Return one line that is cut at the width."""
    return Text(cut(text, width, glyphs), style=style, no_wrap=True)


def bar(share: float, width: int, glyphs: Glyphs, marks: Sequence[float | None] = ()) -> str:
    """Return a bar of a share of 0 to 1, with a mark at each of the shares ``marks``."""
    filled = round(max(0.0, min(1.0, share)) * width)
    drawn = list(glyphs.full * filled + glyphs.empty * (width - filled))
    for mark in marks:
        if mark is not None and 0.0 < mark <= 1.0:
            drawn[min(width - 1, int(mark * width))] = glyphs.mark
    return "".join(drawn)
