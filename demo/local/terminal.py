"""Takes the terminal's Ctrl-C from `make`, which would call it an error."""

from __future__ import annotations

import atexit
import os
import signal
from contextlib import suppress


def take_foreground() -> None:
    """Be the foreground process group of the terminal alone until the end, if a parent such as `make` is in it, too.

    Ctrl-Z is without effect then: the shell would not see that anything stopped. A pipeline is left as it is: its
    reader may need the keyboard.
    """
    before = os.getpgrp()
    if before == os.getpid() or not (os.isatty(0) and os.isatty(1)) or _foreground() != before:
        return
    signal.signal(signal.SIGTSTP, signal.SIG_IGN)
    os.setpgid(0, 0)
    _give_terminal_to(os.getpgrp())
    atexit.register(_give_terminal_to, before)


def _foreground() -> int | None:
    try:
        return os.tcgetpgrp(0)
    except OSError:  # It is the terminal of another session.
        return None


def _give_terminal_to(group: int) -> None:
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTTOU})  # Else it stops a group in the background.
    with suppress(OSError):  # The terminal was closed.
        os.tcsetpgrp(0, group)
    signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
