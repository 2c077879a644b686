"""How much memory one process has."""

import mmap
import os
import subprocess
import sys

import pytest

from ami.governor.probes import process
from tests.support.governor.proc_trees import write

SIZES = (process.pss_kib, process.rss_kib, process.data_kib)


@pytest.fixture
def child():
    """A process that holds 32 MiB."""
    code = "kept = b'x' * 2**25\nprint(1, flush=True)\ninput()"
    started = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    started.stdout.readline()
    yield started
    started.kill()
    started.communicate()


def ended(child):
    """Kill the child, and wait until it is a zombie: ended, and not yet waited for."""
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)


@pytest.mark.processes
@pytest.mark.parametrize("size", SIZES)
def test_what_a_process_holds_shows_in_every_size(child, size):
    assert 2**15 <= size(child.pid) <= 2**15 + 64 * 1024


@pytest.mark.processes
def test_pages_that_two_processes_share_count_half_each():
    shared = mmap.mmap(-1, 2**26)
    shared.write(b"x" * 2**26)
    alone = process.pss_kib(os.getpid())
    (ready, touched), (measured, done) = os.pipe(), os.pipe()
    pid = os.fork()
    if pid == 0:
        for offset in range(0, 2**26, 4096):
            shared[offset]
        os.write(touched, b"1")
        os.close(done)
        os.read(measured, 1)  # Ends when the parent closes its side.
        os._exit(0)
    try:
        os.read(ready, 1)
        proportional = process.pss_kib(os.getpid()) + process.pss_kib(pid)
        resident = process.rss_kib(os.getpid()) + process.rss_kib(pid)
    finally:
        os.close(done)
        os.waitpid(pid, 0)
        for descriptor in (ready, touched, measured):
            os.close(descriptor)
        shared.close()

    assert proportional < alone + 2**15 < resident


def test_a_kernel_without_the_proportional_size_gives_the_resident_one(tmp_path):
    write(tmp_path, "proc/42/statm", "5000 1000 300 1 0 900 0")

    assert process.pss_kib(42, tmp_path) == 1000 * process.PAGE_KIB


def test_a_process_whose_pages_are_hidden_gives_the_resident_size(tmp_path, monkeypatch):
    write(tmp_path, "proc/42/statm", "5000 1000 300 1 0 900 0")
    write(tmp_path, "proc/42/smaps_rollup", "")
    read = type(tmp_path).read_text

    def refused(path):
        if path.name == "smaps_rollup":
            raise PermissionError(13, "Permission denied", str(path))
        return read(path)

    monkeypatch.setattr(type(tmp_path), "read_text", refused)

    assert process.pss_kib(42, tmp_path) == 1000 * process.PAGE_KIB


@pytest.mark.parametrize("ask", SIZES)
def test_a_process_that_never_was_is_an_error(ask):
    with pytest.raises(ProcessLookupError):
        ask(2**22 + 1)  # Above the highest pid there can be.


@pytest.mark.parametrize("ask", SIZES)
@pytest.mark.processes
def test_a_process_that_has_ended_has_no_size(child, ask):
    ended(child)

    with pytest.raises(ProcessLookupError):
        ask(child.pid)


@pytest.mark.parametrize(
    ("ask", "file"),
    [(process.pss_kib, "smaps_rollup"), (process.rss_kib, "statm")],
)
def test_a_broken_file_is_an_error(tmp_path, ask, file):
    write(tmp_path, f"proc/42/{file}", "nonsense")

    with pytest.raises(ValueError):
        ask(42, tmp_path)
