"""`manage.py queues top` in a pseudo-terminal, with real workers and rows."""

import importlib
import subprocess
import sys
import termios
from collections.abc import Iterator

import pytest

from ami.queues.models import AuditEntry, DesiredState, Letter, Worker
from tests.support.cut_relay import cut_relay
from tests.support.place import FOLDER, ROOT, Place, new_place, until
from tests.support.terminal import terminal

B = "tests.support.worker_tasks.basic"
QUEUE = "antenna-interactive"
TOP = (sys.executable, "manage.py", "queues", "top")

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def place() -> Iterator[Place]:
    with new_place("top", FOLDER) as made:
        made.use_test_database()
        made.environment["ANTENNA_EXTRA_TASKS"] = B
        importlib.import_module(B)
        made.queues("declare")
        yield made


def closed_queues() -> list[str]:
    return [queue for row in Worker.objects.all() for queue in row.closed_queues]


def test_queue_is_paused_and_resumed_by_keys_with_audit_entries(place: Place):
    place.worker(QUEUE)
    with terminal(TOP, place.environment) as screen:
        screen.shows("antenna-ingest", QUEUE, "1 running", "q quit")
        screen.press("jj")
        screen.shows(f"▸ {QUEUE}")
        screen.press("p")
        screen.shows(f"Reason to pause {QUEUE}")
        screen.press("disk füll\r")
        screen.shows(f"Pause {QUEUE}? [y/N]")
        assert not DesiredState.objects.exists()
        screen.press("y")
        screen.shows(f"{QUEUE} is paused.", "paused by command:", "disk füll")
        until(lambda: closed_queues() == [QUEUE], 20, "the worker has closed the queue")
        entry = AuditEntry.objects.get(verb="pause")
        assert (entry.target, entry.why, entry.source) == (f"queue {QUEUE}", "disk füll", "command")
        assert entry.who.startswith("command:")
        screen.press("r\ry")
        screen.shows(f"{QUEUE} is resumed.")
        until(lambda: closed_queues() == [], 20, "the worker consumes again")
        screen.press("w")
        screen.shows("interactive@", "2/2", "running")
        screen.resize(60, 12)
        screen.shows("Worker", "Esc back")
        assert len(screen.text.splitlines()) == 12
        screen.press("q")
        assert screen.popen.wait(20) == 0
        assert screen.modes == screen.before
        assert screen.sent.endswith(b"\x1b[?1049l\x1b[?25h")
    assert AuditEntry.objects.filter(verb="resume", target=f"queue {QUEUE}").count() == 1


def test_letters_of_a_cause_are_replayed_by_keys_and_a_pipe_gets_plain_text(place: Place):
    place.worker("antenna", ANTENNA_COLLECT_LETTERS="1")
    printed = piped(place)
    assert "\x1b" not in printed.stdout
    assert max(map(len, printed.stdout.splitlines())) <= 80
    assert "antenna-ingest has no consumer" in printed.stdout
    assert "fallback@" in printed.stdout
    assert "Not a terminal: printed once." in printed.stderr
    ended = place.queues("top", check=False)
    assert ended.code == int(ended.json["verdict"]["level"] == "error")
    assert [row["queue"] for row in ended.json["queues"]][0] == "antenna-ingest"
    assert ended.json["workers"][0]["queues"] == ["antenna"]
    place.send(f"{B}.fail", queue="antenna")
    until(lambda: Letter.objects.filter(state=Letter.State.DEAD).exists(), 60, "the letter is collected")
    with terminal(TOP, place.environment) as screen:
        screen.shows("antenna-ingest", "1 letters")
        screen.press("\x1b[F" + "l")
        screen.shows("Dead letters of antenna, by cause", "fail")
        screen.press("r")
        screen.shows("Reason to replay 1 letter of fail")
        screen.press("mended\ry")
        screen.shows("Replay: 1 letters.")
        screen.press("\x03")
        assert screen.popen.wait(20) == 0
        assert screen.modes[3] & termios.ECHO
    entry = AuditEntry.objects.get(verb="replay")
    assert (entry.why, entry.source) == ("mended", "command")
    until(lambda: len(place.ran("fail")) >= 2, 30, "it ran again")


def test_database_that_does_not_answer_is_said_and_the_screen_goes_on(place: Place):
    with cut_relay(place.environment["DATABASE_URL"], 5432) as relay:
        url = relay.url(place.environment["DATABASE_URL"])
        with terminal(TOP, {**place.environment, "DATABASE_URL": url}) as screen:
            screen.shows("antenna-ingest", "No worker has reported itself")
            relay.cut()
            screen.shows("does not answer for")
            screen.press("j?")
            screen.shows("audit log")
            relay.mend()
            until(lambda: "does not answer" not in screen.text, 20, "the figures are read again")
            relay.close()
            screen.shows("The database does not answer: ")
            screen.press("q")
            assert screen.popen.wait(20) == 0


def test_broker_that_is_away_is_named_and_figures_are_dashes(place: Place):
    away = {**place.environment, "CELERY_BROKER_URL": "amqp://antenna:s3cret@127.0.0.1:1//"}
    with terminal(TOP, away) as screen:
        screen.shows("Broker operation failed", "antenna-ingest             –", seconds=60)
        assert "s3cret" not in screen.text
        assert screen.popen.poll() is None


def piped(place: Place) -> subprocess.CompletedProcess[str]:
    """Run the command without a terminal, once."""
    environment = {**place.environment, "FORCE_COLOR": "1"}
    given = {"cwd": ROOT, "env": environment, "timeout": 120, "stdin": subprocess.DEVNULL}
    return subprocess.run(TOP, **given, capture_output=True, text=True)
