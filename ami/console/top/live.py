"""The screen: drawn again at each key, at each look at the figures, and each second."""

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.control import Control
from rich.text import Text

from ami.console.top import screen, terminal
from ami.console.top.cells import Glyphs, glyphs_for
from ami.console.top.feed import Feed
from ami.console.top.session import Session

REDRAW_SECONDS = 1.0


def show() -> None:
    """Show the queues until a key ends it."""
    for name in ("COLUMNS", "LINES"):  # Of a shell that exports them: the size of before the terminal changed its own.
        os.environ.pop(name, None)
    console = Console(highlight=False, markup=False)
    glyphs = glyphs_for(console.encoding)
    with _quiet(), terminal.keyboard() as keyboard:
        feed = Feed(keyboard.wake)
        session = Session(feed, keyboard.wake)
        try:
            with console.screen(hide_cursor=True):
                feed.start()
                _run(console, session, keyboard, glyphs)
        except KeyboardInterrupt:
            pass
        finally:
            session.close()
            feed.stop()


def _run(console: Console, session: Session, keyboard: terminal.Keyboard, glyphs: Glyphs) -> None:
    while not (session.is_ended or keyboard.is_interrupted):
        _draw(console, session, glyphs)
        for key in keyboard.wait(REDRAW_SECONDS):
            session.press(key)


def _draw(console: Console, session: Session, glyphs: Glyphs) -> None:
    width, height = console.size
    shown = Text("\n").join(_padded(line, width) for line in screen.lines(session, width, height, glyphs))
    console.control(Control.home())
    # The last cell stays empty: a terminal may scroll after it.
    console.print(shown, end="", soft_wrap=True, crop=False, overflow="ignore")


def _padded(line: Text, width: int) -> Text:
    """Return a line that covers what was there before."""
    padded = line.copy()
    padded.append(" " * max(0, width - padded.cell_len))
    return padded


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep log lines from the screen where they would go there; the audit log has its rows all the same."""
    if not sys.stderr.isatty():
        yield
        return
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)
