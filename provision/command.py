"""Runs a command with the services' URLs in its environment, passes signals on to it, and answers with its
exit code."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from types import FrameType

from provision.guard import dies_with_parent

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
PASSED_ON = (*ENDING, signal.SIGUSR1, signal.SIGUSR2)
SENT_BY_KERNEL = 0x80  # si_code SI_KERNEL: the terminal's Ctrl-C, which the command got as well


class Interrupted(BaseException):
    """A signal that ends us came before the command ran; carries its number."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


@contextlib.contextmanager
def interruptible() -> Iterator[list[int]]:
    """The first ending signal raises `Interrupted` in the block, once: the stopping that follows is not
    interrupted again.

    The list is what came later. A signal that was ignored (nohup) stays ignored.
    """
    came: list[int] = []

    def on_signal(number: int, _: FrameType | None) -> None:
        came.append(number)
        if len(came) == 1:
            raise Interrupted(number)

    heard = [number for number in ENDING if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, on_signal) for number in heard}
    try:
        yield came
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def next_signal(wanted: set[int]) -> tuple[int, bool]:
    """Waits for one of the blocked signals: its number, and whether the terminal sent it to the command as
    well.
    """
    if sys.platform == "linux":
        info = signal.sigwaitinfo(wanted)
        return info.si_signo, info.si_code == SENT_BY_KERNEL
    number = signal.sigwait(wanted)
    return number, number in (signal.SIGINT, signal.SIGQUIT) and sys.stdin.isatty()


def run(argv: Sequence[str], variables: Mapping[str, str | None]) -> int:
    """Runs `argv` to its end: its exit code, or 128 + the signal that ended it. Raises FileNotFoundError,
    PermissionError.
    """
    environ = {**os.environ, **{name: value for name, value in variables.items() if value}}
    for name in (name for name, value in variables.items() if not value):
        environ.pop(name, None)
    wanted = {int(number) for number in PASSED_ON if signal.getsignal(number) is not signal.SIG_IGN} | {
        int(signal.SIGCHLD)
    }
    before = signal.pthread_sigmask(signal.SIG_BLOCK, wanted)
    try:
        # The command is our child by the main thread, so it is told when we are killed outright.
        child = subprocess.Popen(argv, env=environ, preexec_fn=dies_with_parent(signal.SIGTERM))  # noqa: PLW1509, S603
        while child.poll() is None:
            number, already_had = next_signal(wanted)
            if number != signal.SIGCHLD and not already_had and child.poll() is None:
                child.send_signal(number)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return child.returncode if child.returncode >= 0 else 128 - child.returncode
