"""Runs a command with the services' URLs in its environment, forwards signals to it, and returns its exit code."""

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
FORWARDED = (*ENDING, signal.SIGUSR1, signal.SIGUSR2)
SENT_BY_KERNEL = 0x80  # si_code SI_KERNEL: the terminal's Ctrl-C, which the command received as well


class Interrupted(BaseException):
    """A terminating signal arrived before the command ran."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


@contextlib.contextmanager
def interruptible() -> Iterator[list[int]]:
    """Raise `Interrupted` in the block for the first terminating signal only, so that the cleanup is not interrupted.

    Yields the list of received signals. A signal that was ignored (nohup) stays ignored.
    """
    received: list[int] = []

    def on_signal(number: int, _: FrameType | None) -> None:
        received.append(number)
        if len(received) == 1:
            raise Interrupted(number)

    handled = [number for number in ENDING if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, on_signal) for number in handled}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def next_signal(wanted: set[int]) -> tuple[int, bool]:
    """Wait for a blocked signal: its number, and whether the terminal also sent it to the command."""
    if sys.platform == "linux":
        info = signal.sigwaitinfo(wanted)
        return info.si_signo, info.si_code == SENT_BY_KERNEL
    number = signal.sigwait(wanted)
    return number, number in (signal.SIGINT, signal.SIGQUIT) and sys.stdin.isatty()


def run(argv: Sequence[str], variables: Mapping[str, str | None]) -> int:
    """Run `argv`; return its exit code, or 128 + its signal. Raises FileNotFoundError, PermissionError."""
    environ = {**os.environ, **{name: value for name, value in variables.items() if value}}
    for name in (name for name, value in variables.items() if not value):
        environ.pop(name, None)
    wanted = {int(number) for number in FORWARDED if signal.getsignal(number) is not signal.SIG_IGN} | {
        int(signal.SIGCHLD)
    }
    before = signal.pthread_sigmask(signal.SIG_BLOCK, wanted)
    try:
        # Forked by the main thread, so the kernel signals the command if this process is killed.
        child = subprocess.Popen(argv, env=environ, preexec_fn=dies_with_parent(signal.SIGTERM))  # noqa: PLW1509, S603
        while child.poll() is None:
            number, already_had = next_signal(wanted)
            if number != signal.SIGCHLD and not already_had and child.poll() is None:
                child.send_signal(number)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return child.returncode if child.returncode >= 0 else 128 - child.returncode
