"""Holding is exact on every pool, on a transport with an event loop and on one without."""

import json
import os
import threading
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch
from urllib.parse import urlsplit, urlunsplit

import pytest
import redis
from kombu.exceptions import ChannelError
from kombu.transport import filesystem

from tests.support.cgroups import MIB, Ballast, Group, new_group
from tests.support.governor.memory_pressure import HELD, QUICK, RELEASED, T, fill, lateness, said
from tests.support.place import Place, Process, celery_at, new_place, until
from tests.support.soak import soak

LIMIT_MIB = 1024
#: So low that a worker which starts above it has room left.
THROTTLE_PERCENT, RESUME_PERCENT = 60, 50
FULL_PERCENT = 68
CHECK_SECONDS, TASK_SECONDS = 0.5, 0.1
#: What is promised beyond the check interval, by whether Celery has a hub there.
HUB_SECONDS, SYNLOOP_SECONDS = 0.3, 2.3
#: Time enough to receive messages, run four tasks and hold before these fall due.
DUE_SECONDS = soak(5, 8)
#: For a machine that has something else to do; the figure is printed.
NOISE_SECONDS = 1.0


@dataclass(frozen=True)
class Ground:
    """A pool and the broker it is on; ``synloop`` is Celery's loop without a hub."""

    broker: str
    pool: str
    synloop: bool

    @property
    def messages(self) -> int:
        """So many that a hold finds a backlog, and not more than are run in a few seconds."""
        return 40 if self.pool == "solo" else 100

    @property
    def delays(self) -> bool:
        """Whether the broker keeps what is due later."""
        return self.broker == "embedded"

    @property
    def quiet_seconds(self) -> float:
        """For how long nothing may happen after a hold was announced."""
        return 3 if self.synloop else 2

    def __str__(self) -> str:
        return f"{self.broker}-{self.pool}"


GEVENT = Ground("amqp", "gevent", synloop=True)
REDIS = [Ground("redis", pool, synloop=False) for pool in ("prefork", "threads", "solo")]
EMBEDDED = [Ground("embedded", pool, synloop=False) for pool in ("prefork", "threads", "solo")]
#: kombu's own folder transport, which has no event loop.
FOLDER = Ground("folder", "threads", synloop=True)
#: Where what is due later is left to others. A ground has the same number in each list, so that one worker runs the
#: tests of a ground one after another. The short form has each pool, and each way that a worker reads its broker, once.
LEAVE_TO_OTHERS = [EMBEDDED[0], FOLDER, *soak([], REDIS[:1])]
GROUNDS = [*LEAVE_TO_OTHERS, GEVENT, EMBEDDED[2], *soak([], [*REDIS[1:], EMBEDDED[1]])]


@dataclass
class Governed:
    """A ground's worker, which began on a full machine, and its place."""

    ground: Ground
    place: Place
    group: Group
    ballast: Ballast
    worker: Process
    #: What was sent before its start.
    waiting: set[str]
    #: How many messages it had received when it had been held for a while, before it ever consumed.
    received_before_its_first_consume: int

    @property
    def received(self) -> int:
        """How many messages it has received."""
        return said(self.worker, " received")

    @property
    def ran(self) -> list[dict[str, Any]]:
        """The records of all tasks."""
        return self.place.ran("quick")

    @property
    def depth(self) -> int:
        """How many messages wait."""
        try:
            return self.place.depth("antenna")
        except ChannelError:  # Redis knows no empty list.
            return 0

    def send(self, number: int, **options: float) -> set[str]:
        """Publish so many tasks, and return their ids."""
        return {self.place.send(f"{T}.quick", TASK_SECONDS, queue="antenna", **options) for _ in range(number)}

    def hold(self) -> None:
        """Make the machine full, and wait until it holds."""
        before = said(self.worker, HELD)
        fill(self.group, self.ballast, FULL_PERCENT)
        until(lambda: said(self.worker, HELD) == before + 1, what="it holds")

    def release(self) -> None:
        """Free the memory, and wait until the worker consumes again."""
        before = said(self.worker, RELEASED)
        self.ballast.hold(0)
        until(lambda: said(self.worker, RELEASED) == before + 1, what="it takes work again")


@pytest.fixture(scope="module")
def ground(request: pytest.FixtureRequest) -> Ground:
    return request.param


@pytest.fixture(scope="module")
def governed(ground: Ground) -> Iterator[Governed]:
    """The ground's worker, its broker there and in this process; every test leaves it released and idle."""
    with new_group(LIMIT_MIB * MIB) as group, new_place(f"governor {ground}") as place, _broker(place, ground):
        place.environment |= QUICK | {
            "MEMORY_CHECK_INTERVAL": str(CHECK_SECONDS),
            "MEMORY_THROTTLE_THRESHOLD": str(THROTTLE_PERCENT),
            "MEMORY_RESUME_THRESHOLD": str(RESUME_PERCENT),
            "ANTENNA_FALLBACK_POOL": ground.pool,
        }
        place.queues("declare")
        most, ballast = group.ballast(), group.ballast()
        waiting = {place.send(f"{T}.quick", TASK_SECONDS, queue="antenna") for _ in range(20)}
        fill(group, most, 30)  # So that the rest crosses the threshold in a moment.
        fill(group, ballast, FULL_PERCENT)
        # gevent is only itself in a process that it has changed before anything else.
        inside = group.enter if ground.pool == "gevent" else []
        worker = place.worker("antenna", inside=inside, **group.environment)
        until(lambda: said(worker, HELD), what="it holds")
        _wait(ground.quiet_seconds)
        made = Governed(ground, place, group, ballast, worker, waiting, said(worker, " received"))
        made.release()
        yield made


@pytest.fixture(autouse=True)
def released_afterwards(governed: Governed) -> Iterator[None]:
    """A test that fails while the worker holds leaves it released all the same."""
    yield
    governed.ballast.hold(0)
    until(lambda: said(governed.worker, RELEASED) == said(governed.worker, HELD), what="it takes work again")


@contextmanager
def _broker(place: Place, ground: Ground) -> Iterator[None]:
    """Point the place, and this process, at the ground's broker."""
    if ground.broker == "amqp":
        yield
        return
    url, options = BROKERS[ground.broker](place.folder)
    place.environment |= {
        "CELERY_BROKER_URL": url,
        "DJANGO_SETTINGS_MODULE": "tests.support.broker_settings",
        "TEST_TRANSPORT_OPTIONS": json.dumps(options),
    }
    with celery_at(url, options), patch.object(filesystem.Channel, "_put", _put_whole):
        yield


def _put_whole(channel: Any, queue: str, payload: dict[str, Any], **_: Any) -> None:
    """Put a message as kombu does, but whole: a worker of its folder transport that sees half a file ends."""
    name = f"{round(time.monotonic() * 1000)}_{uuid.uuid4()}"
    folder = Path(channel.data_folder_out)
    (folder / f"{name}.new").write_text(json.dumps(payload))
    (folder / f"{name}.new").rename(folder / f"{name}.{queue}.msg")


def _redis_database(_: Path) -> tuple[str, dict[str, object]]:
    url = urlunsplit(urlsplit(os.environ["REDIS_URL"])._replace(path="/9"))
    with redis.Redis.from_url(url) as client:
        client.flushdb()
    return url, {}


def _folder(place: Path) -> tuple[str, dict[str, object]]:
    filesystem.Transport.global_state.clear()  # In kombu a process knows one such broker, not one per folder.
    folder = place / "broker"
    (folder / "control").mkdir(parents=True)
    messages = str(folder)
    # Polled more often than once a second, or four slots would run four tasks a second.
    return "filesystem://", {
        "data_folder_in": messages,
        "data_folder_out": messages,
        "processed_folder": messages,
        "control_folder": str(folder / "control"),
        "polling_interval": 0.05,
    }


def _embedded(place: Path) -> tuple[str, dict[str, object]]:
    return f"objectstore+file://{place / 'broker'}", {}


BROKERS = {"redis": _redis_database, "folder": _folder, "embedded": _embedded}


def _wait(seconds: float) -> None:
    """Let time pass: it is for so long that nothing may happen."""
    began = time.monotonic()
    until(lambda: time.monotonic() - began > seconds)


@pytest.mark.parametrize("ground", GROUNDS, ids=str, indirect=True)
def test_a_hold_comes_before_the_first_consume(governed: Governed) -> None:
    assert governed.received_before_its_first_consume == 0
    _every_message_runs_once(governed, governed.waiting)


@pytest.mark.parametrize("ground", GROUNDS, ids=str, indirect=True)
def test_no_task_starts_while_held(governed: Governed) -> None:
    _every_message_runs_once(governed, governed.waiting)
    ran, received = len(governed.ran), governed.received
    sent = governed.send(governed.ground.messages)
    until(lambda: len(governed.ran) > ran + 5, what="tasks run")
    held = said(governed.worker, HELD)
    with lateness() as late, _supply(governed, sent):
        fill(governed.group, governed.ballast, FULL_PERCENT)
        crossed_at = time.time()
        until(lambda: said(governed.worker, HELD) == held + 1, what="it holds")
    held_at, before = time.time(), governed.received
    _wait(governed.ground.quiet_seconds)
    assert governed.received == before < received + len(sent), governed.worker.text.rpartition(HELD)[2]
    records = governed.ran
    assert len(records) - ran == before - received  # What was received had begun, and is over.
    assert max(record["started_at"] for record in records) <= held_at
    _tell_reaction(governed.ground, max(record["started_at"] for record in records) - crossed_at, sum(late))
    governed.release()
    _every_message_runs_once(governed, sent)


@pytest.mark.parametrize("ground", LEAVE_TO_OTHERS, ids=str, indirect=True)
def test_what_arrives_or_falls_due_while_held_is_left_to_others(governed: Governed) -> None:
    _every_message_runs_once(governed, governed.waiting)
    ran, received = len(governed.ran), governed.received
    due_at = time.time() + DUE_SECONDS
    later = governed.send(6, countdown=DUE_SECONDS)
    if not governed.ground.delays:
        until(lambda: governed.received == received + len(later), what="what is due later was received")
    sent = later | governed.send(4)
    until(lambda: len(governed.ran) == ran + 4, what="what is due later takes no slot")
    governed.hold()
    assert time.time() < due_at
    sent |= governed.send(1)
    until(lambda: governed.depth == 7, what="every message is on the broker")
    assert time.time() > due_at
    assert len(governed.ran) == ran + 4
    governed.release()
    _every_message_runs_once(governed, sent)


@contextmanager
def _supply(governed: Governed, sent: set[str]) -> Iterator[None]:
    """Publish whenever few messages are left, until the block ends: a busy machine fills the memory slowly."""
    over = threading.Event()

    def publish() -> None:
        while not over.wait(0.1):
            if governed.depth < governed.ground.messages // 2:
                sent.update(governed.send(10))

    thread = threading.Thread(target=publish, name="supply", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _tell_reaction(ground: Ground, seconds: float, late_seconds: float) -> None:
    allowed = CHECK_SECONDS + (SYNLOOP_SECONDS if ground.synloop else HUB_SECONDS)
    print(f"{ground}: {seconds:.2f} s from crossing to the last start, {allowed:.2f} s allowed")
    assert seconds <= allowed + NOISE_SECONDS + late_seconds


def _every_message_runs_once(governed: Governed, sent: set[str]) -> None:
    until(lambda: governed.depth == 0 and sent <= {record["id"] for record in governed.ran}, what="the rest runs")
    ran = Counter(record["id"] for record in governed.ran)
    assert {name: ran[name] for name in sent} == dict.fromkeys(sent, 1)
