"""Takes the terminal's Ctrl-C from `make`, which would call it an error."""

from __future__ import annotations

import atexit
import os
import signal
import sys
from contextlib import suppress


def take_foreground() -> None:
    """Be the foreground process group of the terminal alone until the end, if a parent such as `make` is in it, too.

    Ctrl-Z is without effect then: the shell would not see that anything stopped.
    """
    before = os.getpgrp()
    if not sys.stdin.isatty() or before == os.getpid() or os.tcgetpgrp(0) != before:
        return
    signal.signal(signal.SIGTSTP, signal.SIG_IGN)
    os.setpgid(0, 0)
    _give_terminal_to(os.getpgrp())
    atexit.register(_give_terminal_to, before)


def _give_terminal_to(group: int) -> None:
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTTOU})  # Else it stops a group in the background.
    with suppress(OSError):  # The terminal was closed.
        os.tcsetpgrp(0, group)
    signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
