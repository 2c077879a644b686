"""Each promise violated on purpose is an alert at a real webhook within two looks, and over when it is mended."""

import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone
from django_celery_beat.models import IntervalSchedule, PeriodicTask

from ami.queues.models import Lease, Letter, Worker
from ami.telemetry.alerts import rules
from ami.telemetry.models import Alert
from tests.support.cgroups import Group
from tests.support.cut_relay import CutRelay, cut_relay
from tests.support.governor.memory_pressure import T, fill
from tests.support.place import Place, Process, new_place, until
from tests.support.soak import soak
from tests.support.transports.recording_server import Recorder, recording

B, QUICK = "tests.support.worker_tasks.basic", "tests.support.worker_tasks.quick_samples"
INGEST, HOUSEKEEPING, INTERACTIVE, FALLBACK = QUEUES = (
    "antenna-ingest",
    "antenna-housekeeping",
    "antenna-interactive",
    "antenna",
)
LIMIT_MIB = 1024
WATCH = "watch@test"
#: A look asks every worker for two seconds. Durations are those of a deployment, five hundred times as short.
INTERVAL, FACTOR = soak(4, 60), soak(0.002, 1.0)
LOAD_SECONDS, DEADLINE = soak(5, 3600), soak(90, 900)
#: A promise is read over five minutes: the late ones are more than one in twenty of what the load sends in that time.
ROUND_SECONDS, LATE = 0.5, soak(6, 90)
VIOLATED = {
    "no-consumer",
    "worker-state",
    "paused",
    "promise-broken",
    "letters-new",
    "all-held",
    "nats-away",
    "no-beat",
}

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.alone, pytest.mark.timeout(soak(300, 6000))]


@pytest.fixture
def server() -> Iterator[Recorder]:
    with recording() as recorder:
        yield recorder


@pytest.fixture
def nats() -> Iterator[CutRelay]:
    with cut_relay(os.environ["NATS_URL"], 4222) as relay:
        yield relay


@pytest.fixture
def place(server: Recorder, nats: CutRelay, settings: Any) -> Iterator[Place]:
    settings.NATS_URL, settings.NATS_IS_CONFIGURED = nats.url(os.environ["NATS_URL"]), True
    settings.ANTENNA_COLLECT_LETTERS = True
    with new_place("alerts") as made:
        made.use_test_database()
        made.environment |= {
            "ANTENNA_EXTRA_TASKS": ",".join(soak((B, T, QUICK), (B, T))),
            "ANTENNA_COLLECT_LETTERS": "1",
            "NATS_URL": settings.NATS_URL,
            "ANTENNA_ALERT_WEBHOOK_URL": server.url,
            "ANTENNA_ALERT_INTERVAL_SECONDS": str(INTERVAL),
            "ANTENNA_ALERT_DURATION_FACTOR": str(FACTOR),
            "MEMORY_CHECK_INTERVAL": "0.2",
            "MEMORY_MIN_HOLD_SECONDS": "0",
        }
        made.queues("declare")
        yield made


def notices(server: Recorder, event: str) -> list[str]:
    return [body["alert"]["name"] for body in map(json.loads, bodies(server)) if body["event"] == event]


def missing(server: Recorder, event: str) -> set[str]:
    return VIOLATED - set(notices(server, event))


def bodies(server: Recorder) -> list[bytes]:
    return [request.body for request in list(server.requests)]


def load(place: Place, seconds: float) -> None:
    """Send what a busy hour sends: short tasks to every queue, each within its promise; at most two rounds a second."""
    until_then = time.monotonic() + seconds
    while (began := time.monotonic()) < until_then:
        for queue in QUEUES:
            place.send(f"{B}.hold", 0.02, queue=queue)
        until(lambda: not any(place.depth(queue) for queue in QUEUES), 30, "the workers keep up")
        time.sleep(max(0.0, began + ROUND_SECONDS - time.monotonic()))


def started(place: Place, group: Group) -> dict[str, Process]:
    """Start the workers, of which interactive's collects the letters, and then the process that looks."""
    until_then = timezone.now() + timedelta(hours=1)
    Lease.objects.create(name="sampler", holder=WATCH, until=until_then)
    workers = {INTERACTIVE: place.worker(INTERACTIVE)}
    until(lambda: Lease.objects.filter(name="letters").exists(), 30, "letters are collected")
    workers |= dict(zip((INGEST, HOUSEKEEPING), place.workers(INGEST, HOUSEKEEPING), strict=True))
    workers[FALLBACK] = place.worker(FALLBACK, **group.environment)
    until(lambda: Worker.objects.filter(is_connected=True).count() == 4, 30, "all workers are seen")
    place.start([sys.executable, "-m", "tests.support.sampling_process", WATCH])
    until(lambda: Lease.objects.filter(name="sampler", until__lt=until_then).exists(), 60, "it samples")
    return workers


def violate(place: Place, workers: dict[str, Process], nats: CutRelay) -> None:
    frozen = Worker.objects.get(pid=workers[HOUSEKEEPING].popen.pid)
    for pid in (frozen.pid, *(pid for pid, _ in frozen.children)):
        os.kill(pid, signal.SIGSTOP)
    place.send(f"{B}.fail", queue=INTERACTIVE)
    until(lambda: Letter.objects.exists(), 30, "the letter is collected")
    for _ in range(LATE):  # Two at a time: all but two begin later than a second.
        place.send(f"{B}.hold", 1.6, queue=INTERACTIVE)
    place.queues("pause", HOUSEKEEPING, "--why", "a test", "--no-wait")
    nats.cut()
    hour = IntervalSchedule.objects.create(every=1, period=IntervalSchedule.HOURS)
    PeriodicTask.objects.create(name="hourly", task=f"{B}.succeed", interval=hour, queue=FALLBACK)
    workers[INGEST].stop()


def mend(place: Place, nats: CutRelay) -> None:
    nats.mend()
    place.queues("resume", HOUSEKEEPING, "--no-wait")
    place.workers(INGEST, HOUSEKEEPING)
    place.beat()
    for row in Letter.objects.values_list("queue", flat=True).distinct():
        place.queues("dead-letters", row, "--discard", "--yes")
    for _ in range(LATE):  # So many that the late ones are fewer than one in twenty.
        for _ in range(20):
            place.send(f"{B}.succeed", queue=INTERACTIVE)
        until(lambda: not place.depth(INTERACTIVE), 30)


def test_each_violated_promise_alerts_within_two_looks_and_resolves(
    place: Place, server: Recorder, nats: CutRelay, group: Group
) -> None:
    workers = started(place, group)
    load(place, LOAD_SECONDS)
    assert not [str(alert) for alert in Alert.objects.exclude(fired_at=None)], "load alone raises none"
    assert not server.requests
    ballast = group.ballast()
    fill(group, ballast, 95)
    violate(place, workers, nats)
    # A pause is an alert after ten minutes, when the tasks that began late are no longer among those of the last five.
    until(lambda: missing(server, "firing") <= {"paused"}, DEADLINE, lambda: f"no alert: {missing(server, 'firing')}")
    shown = {each["name"] for each in place.queues("check", "--live", check=False).json}
    assert shown >= VIOLATED
    until(lambda: not missing(server, "firing"), DEADLINE, "the pause is an alert")
    for alert in Alert.objects.filter(name__in=VIOLATED):
        assert alert.fired_at is not None
        late = (alert.fired_at - alert.since).total_seconds() - rules.of(alert.name).after_seconds * FACTOR
        print(f"{alert}: {late:.1f} s after its duration")
        assert late <= 2 * INTERVAL
    for process in place.processes:
        if "tests.support.sampling_process" in process.argv:
            process.kill()
    Lease.objects.filter(name="sampler").delete()  # A worker takes over at its next try.
    ballast.hold(0)
    mend(place, nats)
    until(lambda: not missing(server, "resolved"), DEADLINE, lambda: f"not over: {missing(server, 'resolved')}")
    assert_in_turn(server)


def assert_in_turn(server: Recorder) -> None:
    """Each alert fires, is over, fires: the process that took over has repeated none and lost none."""
    events: dict[tuple[str, str], list[str]] = {}
    for body in map(json.loads, bodies(server)):
        alert = body["alert"]
        events.setdefault((alert["name"], alert["target"]), []).append(body["event"])
    for key, found in events.items():
        in_turn = [event for event in found if event != "repeat"]  # A warning that has become an error.
        assert in_turn == (["firing", "resolved"] * len(in_turn))[: len(in_turn)], key
