"""Beat: it ends when it stands still or is asked to, and goes on when the broker was away (incident 17)."""

import json
import random
import signal
import socket
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import pytest
from django_celery_beat.models import IntervalSchedule, PeriodicTask

from ami.celery.watchdog import EXIT_CODE
from ami.queues.models import Beat, TickClaim
from tests.support.place import FOLDER, Place, Process, until
from tests.support.soak import soak

TASK = "ami.jobs.tasks.audit_data_integrity"
HOUSEKEEPING = "antenna-housekeeping"


def every_second() -> PeriodicTask:
    second, _ = IntervalSchedule.objects.get_or_create(every=1, period="seconds")
    return PeriodicTask.objects.create(name="every second", task=TASK, interval=second, kwargs=json.dumps({}))


def test_incident_17_frozen_beat_ends_itself_so_that_it_is_started_again(database_place: Place):
    frozen = database_place.beat(
        "--scheduler",
        "tests.support.freezing_scheduler:FreezingScheduler",
        ANTENNA_BEAT_PATIENCE_SECONDS="2",
    )
    until(lambda: frozen.popen.poll() is not None, what="the frozen beat ends")
    assert frozen.popen.returncode == EXIT_CODE
    said = [line for line in frozen.text.splitlines() if "CRITICAL" in line]
    assert len(said) == 1
    assert "No tick has finished for 2 s" in said[0]
    assert "threading.py" in said[0], "and where it stands"


def test_beat_that_waits_for_its_next_tick_is_not_frozen(database_place: Place, tmp_path: Path):
    ticked = tmp_path / "tick"
    variables = {"ANTENNA_BEAT_PATIENCE_SECONDS": "2", "ANTENNA_BEAT_TICK_FILE": str(ticked)}
    waiting = database_place.beat("--max-interval", "3", **variables)
    until(ticked.exists, what="beat ticks")
    for _ in range(2):
        last = ticked.stat().st_mtime_ns
        until(lambda before=last: ticked.stat().st_mtime_ns > before, what="the next tick")
        assert waiting.popen.poll() is None, waiting.text
    assert "CRITICAL" not in waiting.text
    assert waiting.stop() == 0


def test_beat_refuses_a_patience_that_is_not_a_number(database_place: Place):
    command = [sys.executable, "-m", "ami.topology", "beat"]  # As deployment starts it.
    refused = database_place.start(command, ANTENNA_BEAT_PATIENCE_SECONDS="-1")
    until(lambda: refused.popen.poll() is not None)
    assert refused.popen.returncode == 1
    assert "ANTENNA_BEAT_PATIENCE_SECONDS is '-1'; it must be a whole number from 0 to 86400" in refused.text


@pytest.mark.parametrize("place", [FOLDER], indirect=True)
def test_beat_outlives_a_folder_that_cannot_be_opened_yet(database_place: Place):
    place = database_place
    in_the_way = place.folder / "broker"
    in_the_way.touch()
    every_second()
    running = place.beat(ANTENNA_BEAT_PATIENCE_SECONDS="3")
    until(lambda: "Broker operation failed" in running.text, what="beat waits for the broker")
    in_the_way.unlink()
    until(lambda: place.queues("rollout", check=False).json["name"] != "undeclared", what="beat declares")
    until(lambda: place.depth(HOUSEKEEPING) >= 2, what="beat sends")
    assert running.popen.poll() is None
    assert "CRITICAL" not in running.text


def test_beat_that_is_asked_to_end_in_a_tick_sends_it_first(database_place: Place):
    place = database_place
    place.queues("declare")
    row = every_second()
    beat = place.beat("--scheduler", "tests.support.ending_scheduler:EndingScheduler")
    until(lambda: beat.popen.poll() is not None, what="beat ends")
    assert beat.popen.returncode == 0, beat.text
    claim = TickClaim.objects.get(entry=row)
    assert (claim.number, claim.is_sent) == (1, True), "one tick, and it is with the broker"
    assert sent_to(place, HOUSEKEEPING) == [claim.task_id]
    assert not Beat.objects.exists()


@pytest.mark.timeout(900)
def test_beat_ends_in_order_whenever_it_is_asked(database_place: Place):
    """It once raised in the middle of a publish, and then waited for ever for an answer on that connection."""
    place = database_place
    place.queues("declare")
    row = every_second()
    seconds = random.Random(1)
    for _ in range(soak(4, 160)):
        beat = place.beat()
        end_in_a_tick(beat, seconds.random() * 0.04)
        assert not Beat.objects.exists()
        assert TickClaim.objects.get(entry=row).is_sent


def end_in_a_tick(beat: Process, seconds: float) -> None:
    """Ask it to end so long after it has begun to send its second tick, which takes a few milliseconds."""
    until(lambda: "Sending due task" in beat.text, what="beat sends")
    before = beat.text.count("Sending due task")
    until(lambda: beat.text.count("Sending due task") > before, what="the next tick", every=0.002)
    time.sleep(seconds)
    assert beat.stop(10) == 0, beat.text


def sent_to(place: Place, queue: str) -> list[str]:
    """Take every message from a queue; return their task ids."""
    with place.app.connection_for_read() as connection, connection.channel() as channel:
        ids = []
        while message := channel.basic_get(queue, no_ack=True):
            ids.append(message.headers["id"])
        return ids


def test_three_beats_send_each_tick_once_while_one_is_frozen_and_one_killed(database_place: Place):
    place = database_place
    place.queues("declare")
    row = every_second()

    def claimed(ticks: int) -> int:
        number = TickClaim.objects.filter(entry=row).values_list("number", flat=True).first() or 0
        return number if number >= ticks else 0

    beats = [place.beat() for _ in range(3)]
    until(lambda: Beat.objects.count() == 3, what="all beats run")
    found = {finding["name"] for finding in place.queues("check", "--live", check=False).json}
    assert "no-beat" not in found
    begun = claimed(0)
    until(lambda: claimed(begun + 5), what="five ticks")
    frozen, killed, left = beats
    frozen.popen.send_signal(signal.SIGSTOP)
    killed.kill()
    number = claimed(0)
    # A tick that was claimed when its beat was stopped goes out again half a minute later, and holds up its entry.
    until(lambda: claimed(number + 5), 90, "five more of the one that is left")
    frozen.popen.send_signal(signal.SIGCONT)
    number = claimed(0)
    until(lambda: claimed(number + 5), 90, "five more of the two")
    for each in (frozen, left):
        assert each.stop() == 0
    claim = TickClaim.objects.get(entry=row)
    ids = sent_to(place, HOUSEKEEPING)
    assert len(set(ids)) == claim.number
    assert len(ids) - len(set(ids)) <= claim.repeats <= 2
    assert Beat.objects.count() == 1, "the one that was killed; the others ended in order"


class Door:
    """A TCP proxy before the broker, which can be shut: connections are then cut and refused."""

    def __init__(self, host: str, port: int) -> None:
        self._broker = (host, port)
        self._sockets: list[socket.socket] = []
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self._listener: socket.socket | None = None

    def open(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", self.port))
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def shut(self) -> None:
        for one in [self._listener, *self._sockets]:
            if one is not None:
                with suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)
                one.close()
        self._listener, self._sockets = None, []

    def _accept(self, listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                near, _ = listener.accept()
                far = socket.create_connection(self._broker)
                self._sockets += [near, far]
                for source, sink in ((near, far), (far, near)):
                    threading.Thread(target=_pump, args=(source, sink), daemon=True).start()


def _pump(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            sink.sendall(data)
    with suppress(OSError):
        sink.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def door(place: Place):
    """A way to the broker that beat takes, and that the test does not."""
    parts = urlsplit(place.broker_url)
    door = Door(parts.hostname or "", parts.port or 5672)
    there = f"{parts.username}:{parts.password}@127.0.0.1:{door.port}"
    place.environment["CELERY_BROKER_URL"] = urlunsplit(parts._replace(netloc=there))
    yield door
    door.shut()


def test_beat_outlives_an_unreachable_broker_at_start_and_later(database_place: Place, door: Door):
    place = database_place
    place.queues("declare")
    every_second()
    running = place.beat(ANTENNA_BEAT_PATIENCE_SECONDS="3")
    until(lambda: "Broker operation failed" in running.text, what="beat waits for the broker")
    door.open()
    until(lambda: place.depth(HOUSEKEEPING) >= 2, what="beat sends")

    door.shut()
    until(lambda: running.text.count("Broker operation failed") >= 2, what="a tick found no broker")
    before = place.depth(HOUSEKEEPING)
    door.open()
    until(lambda: place.depth(HOUSEKEEPING) >= before + 2, what="beat sends again")
    assert running.popen.poll() is None
    assert "CRITICAL" not in running.text
