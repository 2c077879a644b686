"""Holding is exact on every pool, on a transport with an event loop and on one without."""

import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import pytest
import redis
from kombu.exceptions import ChannelError
from kombu.transport import filesystem

from tests.support.cgroups import Group
from tests.support.governor.memory_pressure import HELD, QUICK, RELEASED, T, fill, said
from tests.support.place import Place, Process, celery_at, until
from tests.support.soak import soak

LIMIT_MIB = 2048
#: So low that a worker which starts above it has room left.
THROTTLE_PERCENT, RESUME_PERCENT = 60, 50
FULL_PERCENT = 63
CHECK_SECONDS, TASK_SECONDS = 0.5, 0.1
#: What is promised beyond the check interval, by whether Celery has a hub there.
HUB_SECONDS, SYNLOOP_SECONDS = 0.3, 2.3
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
    def quiet_seconds(self) -> float:
        """For how long nothing more may happen after a hold was declared."""
        return 3 if self.synloop else 2

    def __str__(self) -> str:
        return f"{self.broker}-{self.pool}"


GEVENT = Ground("amqp", "gevent", synloop=True)
REDIS = [Ground("redis", pool, synloop=False) for pool in ("prefork", "threads", "solo")]
EMBEDDED = [Ground("embedded", pool, synloop=False) for pool in ("prefork", "threads", "solo")]
#: kombu's own folder transport, which has no event loop.
FOLDER = Ground("folder", "threads", synloop=True)
GROUNDS = soak([GEVENT, REDIS[0], EMBEDDED[2], FOLDER], [GEVENT, *REDIS, *EMBEDDED, FOLDER])


@pytest.fixture
def ground(request: pytest.FixtureRequest) -> Ground:
    return request.param


@pytest.fixture
def governed(place: Place, ground: Ground) -> Iterator[Place]:
    """The place with the ground's broker, there and in this process."""
    place.environment |= QUICK | {
        "MEMORY_CHECK_INTERVAL": str(CHECK_SECONDS),
        "MEMORY_THROTTLE_THRESHOLD": str(THROTTLE_PERCENT),
        "MEMORY_RESUME_THRESHOLD": str(RESUME_PERCENT),
        "ANTENNA_FALLBACK_POOL": ground.pool,
    }
    if ground.broker == "amqp":
        place.queues("declare")
        yield place
        return
    url, options = BROKERS[ground.broker](place.folder)
    place.environment |= {
        "CELERY_BROKER_URL": url,
        "DJANGO_SETTINGS_MODULE": "tests.support.broker_settings",
        "TEST_TRANSPORT_OPTIONS": json.dumps(options),
    }
    with celery_at(url, options):
        place.queues("declare")
        yield place


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
    # Looked into more often than once a second, or four slots would run four tasks a second.
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


def _send(place: Place, number: int, **options: float) -> set[str]:
    return {place.send(f"{T}.quick", TASK_SECONDS, queue="antenna", **options) for _ in range(number)}


def _depth(place: Place) -> int:
    try:
        return place.depth("antenna")
    except ChannelError:  # Redis knows no empty list.
        return 0


def _received(worker: Process) -> int:
    return said(worker, " received")


@pytest.mark.parametrize("ground", GROUNDS, ids=str, indirect=True)
def test_after_held_not_one_more_task_starts(governed: Place, group: Group, ground: Ground) -> None:
    place, most, ballast = governed, group.ballast(), group.ballast()
    fill(group, most, 30)  # So that the rest crosses the threshold in a moment.
    sent = _send(place, ground.messages)
    worker = place.worker("antenna", inside=group.enter)
    until(lambda: len(place.ran("quick")) > 5, 30, "tasks run")
    fill(group, ballast, FULL_PERCENT)
    crossed_at = time.time()
    until(lambda: said(worker, HELD), 10, "it holds")
    held_at, before = time.time(), _received(worker)
    until(lambda: time.time() > held_at + ground.quiet_seconds, 10)
    assert _received(worker) == before < len(sent), worker.text.rpartition(HELD)[2]
    records = place.ran("quick")
    assert len(records) == before  # What was received had begun, and is over.
    assert max(record["started_at"] for record in records) <= held_at
    _tell_reaction(ground, max(record["started_at"] for record in records) - crossed_at)
    ballast.hold(0)
    until(lambda: said(worker, RELEASED), 10, "it takes work again")
    _every_message_runs_once(place, sent)


@pytest.mark.parametrize("ground", [GEVENT, REDIS[0], EMBEDDED[0], FOLDER], ids=str, indirect=True)
def test_a_hold_comes_before_the_first_consume(governed: Place, group: Group, ground: Ground) -> None:
    place, ballast = governed, group.ballast()
    sent = _send(place, 20)
    fill(group, ballast, FULL_PERCENT)
    worker = place.worker("antenna", inside=group.enter)
    until(lambda: said(worker, HELD), 10, "it holds")
    held_at = time.time()
    until(lambda: time.time() > held_at + ground.quiet_seconds, 10)
    assert _received(worker) == 0
    ballast.hold(0)
    _every_message_runs_once(place, sent)


@pytest.mark.parametrize("ground", [REDIS[0], EMBEDDED[0], FOLDER], ids=str, indirect=True)
def test_what_arrives_or_falls_due_while_held_is_left_to_others(governed: Place, group: Group, ground: Ground) -> None:
    place, ballast = governed, group.ballast()
    worker = place.worker("antenna", inside=group.enter)
    due_at = time.time() + 7
    later = _send(place, 6, countdown=7)
    until(lambda: _received(worker) == len(later), 10, "what is due later was received")
    sent = later | _send(place, 4)
    until(lambda: len(place.ran("quick")) == 4, 3, "what is due later takes no slot")
    fill(group, ballast, FULL_PERCENT)
    until(lambda: said(worker, HELD), 10, "it holds")
    assert time.time() < due_at
    sent |= _send(place, 1)
    until(lambda: _depth(place) == 7, 10, "every message is on the broker")
    assert time.time() > due_at
    assert len(place.ran("quick")) == 4
    ballast.hold(0)
    _every_message_runs_once(place, sent)


def _tell_reaction(ground: Ground, seconds: float) -> None:
    allowed = CHECK_SECONDS + (SYNLOOP_SECONDS if ground.synloop else HUB_SECONDS)
    print(f"{ground}: {seconds:.2f} s from crossing to the last start, {allowed:.2f} s allowed")
    assert seconds <= allowed + NOISE_SECONDS


def _every_message_runs_once(place: Place, sent: set[str]) -> None:
    until(lambda: len(place.ran("quick")) >= len(sent), 30, "the rest runs")
    assert sorted(record["id"] for record in place.ran("quick")) == sorted(sent)
