"""Several commands under one parent: their output, the signals that stop them, and how they end."""

import io
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ami.topology.process_group import Command, ProcessGroup
from tests.support.place import until

pytestmark = pytest.mark.processes

READY = "import os, signal, sys, time\nprint('ready')\n"
WAIT = f"{READY}time.sleep(60)"
#: A child that asks its parent to stop, as a terminal does, when its first line was printed.
ASK = "os.kill(os.getppid(), signal.SIGTERM)\n"
DEAF = "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"


#: Longer than any test waits for anything else.
GRACE_SECONDS = 30.0


def run(grace_seconds: float = GRACE_SECONDS, **scripts: str) -> tuple[int, list[str]]:
    """Run one Python script per name; return the exit code and the lines."""
    out = io.StringIO()
    code = ProcessGroup([command(name, text, grace_seconds) for name, text in scripts.items()], out).run()
    return code, out.getvalue().splitlines()


def command(name: str, script: str, grace_seconds: float = 30) -> Command:
    return Command(name, [sys.executable, "-S", "-c", script], os.environ, grace_seconds)


def test_each_line_carries_the_name_of_its_command():
    script = "import sys\nprint('one')\nprint('two', file=sys.stderr)\nsys.stdout.write('rest')"
    _, lines = run(ingest=script)
    assert lines[:2] == ["ingest | one", "ingest | two"]
    assert "ingest | rest" in lines


def test_command_that_ends_is_named_and_stops_the_others():
    code, lines = run(ingest=WAIT, fallback=f"{READY}sys.exit(7)", beat=WAIT)
    assert code == 7
    assert "all      | fallback ended with exit code 7; stopping the others" in lines
    assert "all      | SIGTERM to ingest, beat" in lines


@pytest.mark.parametrize(("script", "code"), [("", 1), ("import os\nos.kill(os.getpid(), 9)", 137)], ids=["0", "KILL"])
def test_command_that_ends_unasked_is_never_a_success(script: str, code: int):
    assert run(ingest=script, fallback=WAIT)[0] == code


def test_signal_stops_all_and_is_a_success():
    code, lines = run(ingest=WAIT, fallback=READY + ASK + "time.sleep(60)")
    assert code == 0
    assert lines[-1] == "all      | SIGTERM to ingest, fallback"


def test_second_signal_ends_commands_that_do_not_stop():
    _, lines = run(ingest=f"{READY}{DEAF}time.sleep(60)", fallback=f"{READY}{asks_at('SIGTERM')}{ASK}time.sleep(60)")
    assert [line.split()[2] for line in lines if line.startswith("all ")] == ["SIGTERM", "SIGQUIT"]


def test_second_signal_ends_commands_of_a_background_job():
    before = signal.signal(signal.SIGQUIT, signal.SIG_IGN)  # As a shell starts one.
    try:
        began = time.monotonic()
        test_second_signal_ends_commands_that_do_not_stop()
        assert time.monotonic() - began < GRACE_SECONDS
    finally:
        signal.signal(signal.SIGQUIT, before)


def test_third_signal_kills():
    code, lines = run(ingest=f"{READY}{asks_at('SIGTERM')}{asks_at('SIGQUIT')}{ASK}time.sleep(60)")
    assert code == 0
    assert lines[-1] == "all    | SIGKILL to ingest"


def asks_at(name: str) -> str:
    """Return the line with which a command asks its parent to stop again, instead of stopping."""
    return f"signal.signal(signal.{name}, lambda *_: {ASK.strip()})\n"


def test_command_that_does_not_stop_in_its_time_is_killed():
    code, lines = run(0.5, ingest=f"{READY}{DEAF}{ASK}time.sleep(60)")
    assert code == 0
    assert lines[-1] == "all    | SIGTERM to ingest"


def test_what_a_command_started_ends_with_it(tmp_path: Path):
    file = tmp_path / "pid"
    run(ingest=f"import subprocess\nopen('{file}', 'w').write(str(subprocess.Popen(['sleep', '60']).pid))")
    until(lambda: not _runs(int(file.read_text())), 10, "it is killed")


#: Starts two commands that ignore SIGTERM and print their process ids.
PARENT = f"""
import os, sys
from ami.topology.process_group import Command, ProcessGroup
script = {(READY + DEAF).replace("'ready'", "os.getpid()") + "time.sleep(60)"!r}
commands = [Command(name, [sys.executable, "-S", "-c", script], os.environ, 30) for name in ("ingest", "beat")]
sys.exit(ProcessGroup(commands).run())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel kills a child with its parent on Linux alone")
def test_commands_end_with_a_parent_that_is_killed():
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout
        pids = [int(parent.stdout.readline().split("|")[1]) for _ in range(2)]
        parent.kill()
        until(lambda: not any(_runs(pid) for pid in pids), 10, "both commands are gone")


def test_closed_output_stops_all_without_a_traceback():
    line = [
        sys.executable,
        "-c",
        PARENT.replace("SIG_IGN", "SIG_DFL").replace("time.sleep(60)", "print(1)\\ntime.sleep(60)"),
    ]
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as parent:
        assert parent.stdout
        assert parent.stderr
        parent.stdout.close()
        assert parent.stderr.read() == ""
        assert parent.wait(30) == 0


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
