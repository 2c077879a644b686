"""`make run` at a terminal: whom Ctrl-C reaches, and whose terminal is left alone."""

import fcntl
import os
import select
import subprocess
import sys
import termios
from contextlib import suppress

import pytest

from tests.support.place import ROOT, until

#: As `make` runs it: the shell is in the terminal's foreground group and would end by the same Ctrl-C.
UNDER_A_SHELL = """
from demo.local.terminal import take_foreground
import time
take_foreground()
try:
    print("up", flush=True)
    time.sleep(600)
except KeyboardInterrupt:
    print("stopped", flush=True)
"""


@pytest.mark.processes
def test_ctrl_c_reaches_the_program_alone_and_not_make():
    master, slave = os.openpty()
    shell = subprocess.Popen(
        ["sh", "-c", '"$0" -c "$1"; echo "the shell goes on"', sys.executable, UNDER_A_SHELL],
        cwd=ROOT,
        stdin=slave,
        stdout=slave,
        stderr=slave,
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    )
    os.close(slave)
    shown = b""

    def said(text: bytes) -> bool:
        nonlocal shown
        if select.select([master], [], [], 0.1)[0]:
            with suppress(OSError):  # Everybody has closed it.
                shown += os.read(master, 4096)
        return text in shown

    try:
        until(lambda: said(b"up"), 30)
        os.write(master, b"\x03")
        until(lambda: said(b"the shell goes on"), 30, lambda: shown)
        assert b"stopped" in shown
        assert shell.wait(20) == 0
    finally:
        shell.kill()
        shell.wait()
        os.close(master)


UNMOVED = """
import os
from demo.local.terminal import take_foreground
before = os.getpgrp()
take_foreground()
raise SystemExit(os.getpgrp() != before)
"""


@pytest.mark.processes
@pytest.mark.parametrize("is_piped", [True, False], ids=["pipeline", "another session's"])
def test_terminal_that_others_need_is_not_taken(is_piped: bool):
    """The reader of a pipeline, such as `less`, would be stopped for reading the keyboard from the background."""
    master, slave = os.openpty()
    try:
        done = subprocess.run(
            ["sh", "-c", '"$0" -c "$1"; exit $?', sys.executable, UNMOVED],
            cwd=ROOT,
            stdin=slave,
            stdout=subprocess.PIPE if is_piped else slave,
            stderr=subprocess.PIPE,
            start_new_session=True,
            preexec_fn=(lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0)) if is_piped else None,
            check=False,
        )
    finally:
        os.close(slave)
        os.close(master)
    assert (done.returncode, done.stderr) == (0, b"")
