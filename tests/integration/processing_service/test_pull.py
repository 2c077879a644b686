"""Pull mode as a real process against a small real server with Antenna's contract."""

import os
import signal
import socket
import subprocess
import sys
import time

import pytest

from tests.support import forked_python
from tests.support.place import Process
from tests.support.product.pull_server import TOKEN, Contract


@pytest.fixture
def start(tmp_path):
    """Start a worker: forked, or in a new interpreter."""
    started = []

    def start(url, *options, new_interpreter=False, **environment):
        argv = ["-m", "processing_service", "pull", "--antenna", url, "--project", "3"]
        argv += ["--name", "bench", "--poll-seconds", "0.1", *options]
        env = {**os.environ, "ANTENNA_TOKEN": TOKEN, "OMP_NUM_THREADS": "1", **environment}
        log = tmp_path / f"{len(started)}.log"
        with log.open("wb") as output:
            if new_interpreter:
                argv = [sys.executable, *argv]
                popen = subprocess.Popen(argv, env=env, stdout=output, stderr=output, start_new_session=True)
            else:
                popen = forked_python.start(argv, env=env, stdout=output, stderr=output)
        started.append(Process(argv, popen, log))
        return started[-1]

    yield start
    for process in started:
        process.kill()


def finish(process, within=60):
    return process.popen.wait(within), process.text


def test_every_task_is_answered_even_with_a_bad_picture(start, serve, pictures):
    names = ["insect.jpg", "cut.jpg", "empty-sheet.jpg", "missing.jpg?secret=xyz", "text.jpg"]
    antenna = Contract([f"{pictures}/{name}" for name in names], "sheet-moths")
    with serve(antenna.app()) as url:
        code, log = finish(
            start(url, "--pipeline", "sheet-moths", "--batch-size", "2", "--until-idle", "0.5", new_interpreter=True)
        )
    assert code == 0, log
    assert len(antenna.results) == 5
    assert len(antenna.results["$JS.ACK.1"]["detections"]) == 1
    assert antenna.results["$JS.ACK.3"]["detections"] == []
    for number in (2, 4, 5):
        answer = antenna.results[f"$JS.ACK.{number}"]
        assert set(answer) == {"error", "image_id"}
        assert answer["image_id"] == str(number)
    assert TOKEN not in log
    assert "secret" not in log
    assert [pipeline.slug for pipeline in antenna.registered[0].pipelines] == ["sheet-moths"]
    assert antenna.registered[0].processing_service_name == "bench"


def test_503_is_retried_after_its_retry_after(start, serve, pictures):
    antenna = Contract([f"{pictures}/insect.jpg"] * 3)
    antenna.busy = 1
    antenna.not_applied = "Pipeline 'constant' is disabled in this project and stays so."
    with serve(antenna.app()) as url:
        started = time.monotonic()
        code, log = finish(start(url, "--once", "--pullers", "1"))
        elapsed = time.monotonic() - started
    assert code == 0, log
    assert antenna.posts == [503, 200]
    assert len(antenna.results) == 3
    assert elapsed >= 1
    assert "antenna retry" in log
    assert "is disabled in this project" in log


def test_login_password_is_not_logged(start, serve, pictures):
    antenna = Contract([f"{pictures}/insect.jpg"])
    with serve(antenna.app()) as url:
        options = ["--once", "--email", "a@b.c", "--password-env", "WORD", "--log-level", "debug"]
        code, log = finish(start(url, *options, ANTENNA_TOKEN="", WORD="pass word"))
    assert code == 0, log
    assert len(antenna.results) == 1
    assert "pass word" not in log
    assert TOKEN not in log


def test_sigterm_stops_it_after_its_tasks_are_posted(start, serve, pictures, until):
    antenna = Contract([f"{pictures}/insect.jpg"] * 400)
    with serve(antenna.app()) as url:
        process = start(url, "--batch-size", "4", "--pullers", "2")
        until(lambda: antenna.results, "a first batch")
        antenna.busy = 1
        process.popen.send_signal(signal.SIGTERM)
        code, log = finish(process)
    assert code == 0, log
    assert len(antenna.results) + len(antenna.tasks) == 400
    assert antenna.tasks


def test_idle_worker_keeps_polling_and_stops_immediately(start, serve, until):
    antenna = Contract([])
    with serve(antenna.app()) as url:
        process = start(url)
        until(lambda: antenna.polls > 6, "several polls")
        process.popen.send_signal(signal.SIGTERM)
        code, log = finish(process, within=20)
    assert code == 0, log


@pytest.mark.parametrize("when", ["at the start", "later"])
def test_refused_token_ends_it_with_a_reason(start, serve, until, when):
    antenna = Contract([])
    antenna.revoked = when == "at the start"
    with serve(antenna.app()) as url:
        process = start(url)
        if when == "later":
            until(lambda: antenna.polls > 2, "a few polls")
            antenna.revoked = True
        code, log = finish(process)
    assert code == 1
    assert "401" in log
    assert "Traceback" not in log


def test_worker_waits_for_antenna_to_start(start, serve, pictures, until):
    antenna = Contract([f"{pictures}/insect.jpg"])
    with socket.create_server(("127.0.0.1", 0)) as reserved:
        port = reserved.getsockname()[1]
    process = start(f"http://127.0.0.1:{port}", "--once", "--pullers", "1")
    until(lambda: "antenna retry" in process.text, "a first attempt in vain")
    with serve(antenna.app(), port):
        code, log = finish(process)
    assert code == 0, log
    assert len(antenna.results) == 1
