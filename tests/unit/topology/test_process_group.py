"""Several commands under one parent: their output, the signals that stop them, and how they end."""

import io
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

from ami.topology import restarts
from ami.topology.process_group import Command, ProcessGroup, printed
from ami.topology.restarts import Freezes, Restarts
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
    script = f"{READY}print('two', file=sys.stderr)\nsys.stdout.write('rest')\n{ASK}time.sleep(60)"
    _, lines = run(ingest=script)
    assert lines[:2] == ["ingest | ready", "ingest | two"]
    assert "ingest | rest" in lines


@pytest.fixture
def no_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(restarts, "WAITS_SECONDS", (0.0, 0.0, 0.0))


@pytest.mark.parametrize(
    ("script", "code", "ended"),
    [
        ("sys.exit(7)", 7, "ended with exit code 7"),
        ("", 1, "ended with exit code 0"),
        ("os.kill(os.getpid(), 9)", 137, "was ended by SIGKILL"),
    ],
    ids=["7", "0", "KILL"],
)
def test_command_that_ends_is_started_again_three_times(script: str, code: int, ended: str, no_waits: None):
    found, lines = run(fallback=READY + script)
    assert found == code, "an end that nobody asked for is no success"
    assert lines.count(f"all      | fallback {ended}; starting it again") == 3
    assert lines.count("fallback | ready") == 4
    assert lines[-1] == f"all      | fallback {ended} after 3 restarts in 10 minutes; it stays down"


def test_others_go_on_when_one_stays_down(tmp_path: Path, no_waits: None):
    file = tmp_path / "out"
    wait = f"while 'stays down' not in open({str(file)!r}).read(): time.sleep(0.01)\n"
    commands = [
        command("fallback", f"{READY}sys.exit(7)"),
        command("ingest", f"{READY}{wait}{ASK}time.sleep(60)"),
    ]
    with file.open("w") as out:
        assert ProcessGroup(commands, out).run() == 7
    lines = file.read_text().splitlines()
    assert (
        "all      | fallback ended with exit code 7 after 3 restarts in 10 minutes; it stays down, the others go on"
        in lines
    )
    assert lines[-1] == "all      | SIGTERM to ingest"


def test_planned_restart_is_not_counted(tmp_path: Path, no_waits: None):
    file = tmp_path / "starts"
    script = f"open({str(file)!r}, 'a').write('x')\nsys.exit(75 if len(open({str(file)!r}).read()) < 6 else 3)"
    code, lines = run(ingest=READY + script)
    assert code == 3
    assert lines.count("all    | ingest ended with exit code 75; starting it again") == 5
    assert lines.count("all    | ingest ended with exit code 3; starting it again") == 3


def test_starts_are_counted_within_ten_minutes():
    counted = Restarts()
    assert [counted.wait_seconds(1, at) is not None for at in (0, 200, 400, 590, 601, 602)] == [
        *(True, True, True, False),
        *(True, False),
    ]


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has /proc")
def test_stopped_command_is_killed_and_started_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_waits: None):
    monkeypatch.setattr(restarts, "LOOK_SECONDS", 0.02)
    monkeypatch.setattr(restarts, "STOPPED_LOOKS", 5)
    file = tmp_path / "starts"
    freeze = f"open({str(file)!r}, 'a').write('x')\nif len(open({str(file)!r}).read()) < 2: os.kill(os.getpid(), 19)\n"
    code, lines = run(ingest=READY + freeze + ASK + "time.sleep(60)")
    assert code == 0
    assert "all    | ingest was stopped by a signal for 5 s; it is killed" in lines
    assert lines[-1] == "all    | SIGTERM to ingest"


def test_worker_whose_pulse_stands_still_is_frozen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(restarts, "LOOK_SECONDS", 0.0)
    monkeypatch.setattr(restarts, "SILENT_LOOKS", 6)
    pulse, leaders = tmp_path / "pulse", {os.getpid(): tmp_path / "pulse"}
    frozen = Freezes()

    def found(looks: int) -> int:
        return sum(len(list(frozen.found(leaders))) for _ in range(looks))

    assert found(20) == 0, "it has not begun"
    pulse.write_text("consumes\n")
    assert found(5) == 0
    os.utime(pulse, (1, 1))
    assert found(5) == 0, "a new one counts anew"
    assert found(9) == 1
    pulse.write_text("without the broker\n")
    assert found(20) == 0, "without a broker nothing renews it"
    pulse.write_text("runs a task\n")
    os.utime(pulse, (time.time() + 3600,) * 2)
    assert found(20) == 0, "a solo worker's task may last so long"


def test_stop_starts_nothing_that_waits_for_its_next_start(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(restarts, "WAITS_SECONDS", (GRACE_SECONDS,))
    out = io.StringIO()
    group = ProcessGroup(out=out)
    group.start(command("ingest", f"{READY}sys.exit(7)"))
    until(lambda: group.step() and group._due, 20)
    group._due["ingest"] = (0.0, group._due["ingest"][1])  # It is due when the request comes.
    assert group.stop() == 0
    assert out.getvalue().count("ready") == 1


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
    start = f"import subprocess\nopen('{file}', 'w').write(str(subprocess.Popen(['sleep', '60']).pid))\n"
    run(ingest=f"{READY}{start}{ASK}time.sleep(60)")
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


def test_output_made_nonblocking_by_others_is_waited_for():
    read, write = os.pipe()
    os.set_blocking(write, False)
    with suppress(BlockingIOError):
        while os.write(write, b"." * 4096):
            pass
    received: list[bytes] = []
    with open(read, "rb") as source, open(write, "w") as out:
        reader = threading.Thread(target=lambda: received.extend(source))
        threading.Timer(0.1, reader.start).start()
        assert printed("line", out)
        assert printed("another", out)
        out.close()
        until(lambda: b"".join(received).endswith(b".line\nanother\n"), 20)
        reader.join()


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
