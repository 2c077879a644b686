"""The suite's parts: each test is run once, and what starts processes is kept out of the fast part."""

import subprocess
import sys

import pytest

from tests.support import failures, parts


def test_a_unit_test_without_a_database_is_fast(request: pytest.FixtureRequest):
    assert parts.parts_of(request.node) == {parts.FAST}


@pytest.mark.processes
def test_a_unit_test_marked_processes_is_not_fast(request: pytest.FixtureRequest):
    assert parts.parts_of(request.node) == {parts.PROCESSES}


@pytest.mark.sqlite
@pytest.mark.django_db
def test_a_database_test_marked_sqlite_runs_on_both(request: pytest.FixtureRequest):
    assert parts.parts_of(request.node) == {parts.FAST, parts.SERVICES}


@pytest.mark.django_db
def test_a_database_test_runs_on_services_only(request: pytest.FixtureRequest):
    assert parts.parts_of(request.node) == {parts.SERVICES}


def test_a_test_marked_alone_is_in_no_other_part(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch):
    request.node.add_marker("alone")
    with pytest.raises(pytest.UsageError, match="is marked `alone` outside tests/acceptance"):
        parts.parts_of(request.node)
    monkeypatch.setattr(request.node, "path", parts.ROOT / "acceptance/test_something.py")
    assert parts.parts_of(request.node) == {parts.ALONE}


def test_select_keeps_the_wanted_parts_and_returns_the_others(request: pytest.FixtureRequest):
    kept = [request.node]
    assert parts.select(kept, {parts.FAST}) == []
    assert kept == [request.node]
    assert parts.select(kept, {parts.ALONE, parts.CONTAINERS}) == [request.node]
    assert kept == []


def test_a_process_of_an_unmarked_test_is_refused(request: pytest.FixtureRequest):
    watch = parts.NoProcesses()
    watch.audit("subprocess.Popen", ())
    watch.watch(request.node)
    watch.audit("open", ())
    with pytest.raises(AssertionError, match="starts a process .os.fork.: mark it with `processes`"):
        watch.audit("os.fork", ())


@pytest.mark.processes
def test_a_process_of_a_marked_test_is_allowed(request: pytest.FixtureRequest):
    watch = parts.NoProcesses()
    watch.watch(request.node)
    watch.audit("os.fork", ())


@pytest.mark.processes
def test_a_failure_lists_the_processes_left_running(request: pytest.FixtureRequest):
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as left:
        assert f"{left.pid:>8}  running      {sys.executable} -c input()" in failures.left_running(request.node.nodeid)
        left.communicate(b"\n")
    assert str(left.pid) not in failures.left_running(request.node.nodeid)
