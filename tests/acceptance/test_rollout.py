"""The way from one queue to four and back: nothing is stranded, nothing is lost, and every message is counted."""

from collections import Counter

import pytest
from kombu import Producer, Queue

from ami.topology.router import ORIGIN_HEADER
from ami.topology.table import FALLBACK
from ami.topology.topology import load
from tests.support.place import BROKERS, ON_FOLDER, Place, until

on_every_broker = pytest.mark.parametrize("place", BROKERS, indirect=True)

T = "tests.support.worker_tasks.basic"
QUEUES = load({}).queues
SPLIT = tuple(queue for queue in QUEUES if queue != FALLBACK)


def test_rollout_says_where_it_stands_and_refuses_to_split_without_workers(place: Place, db: None):
    done = place.queues("rollout", check=False, routing="single")
    assert done.code == 1
    assert done.json["name"] == "undeclared"

    place.queues("declare")
    place.worker("antenna", ANTENNA_ROUTING="single")
    done = place.queues("rollout", check=False, routing="single")
    stage = done.json
    assert (done.code, stage["name"], stage["may_split"]) == (1, "without workers", False)
    assert "python -m ami.topology worker antenna-ingest" in stage["next_step"]

    place.workers(*SPLIT, ANTENNA_ROUTING="single")
    # A worker consumes as soon as its children are up, a moment after it has said that it is ready.
    until(lambda: place.queues("rollout", check=False, routing="single").code == 0, what="every queue is read")
    stage = place.queues("rollout", routing="single").json
    assert (stage["name"], stage["may_split"]) == ("ready", True)
    rows = place.queues("check", "--live", routing="single").json
    assert [row for row in rows if row["level"] in ("error", "unseen")] == [], "a healthy deployment"
    assert place.queues("rollout").json["name"] == "split"

    def fingerprints() -> int:
        rows = place.queues("check", "--live", check=False).json
        return [row["name"] for row in rows].count("fingerprint")

    until(lambda: fingerprints() == len(QUEUES), what="each worker reports single, and this publisher split")

    done = place.queues("rollback", "--yes", check=False)
    assert done.code == 1
    assert "celeryworker_ingest" in done.error


@on_every_broker
def test_rollback_loses_no_message_delayed_or_retried(place: Place, settings):
    place.queues("declare")
    ready = [send(place, number, None) for number in range(30)]
    delayed = [send(place, number, 6) for number in range(10)]
    retried = send(place, 0, 6, retries=1)
    # The broker keeps the delayed ones apart.
    counts = Counter(SPLIT[number % len(SPLIT)] for number in range(30))
    assert {queue: place.depth(queue) for queue in SPLIT} == counts

    moved = place.queues("rollback", "--yes").json
    assert moved == counts
    sent = {*ready, *delayed, retried}
    with place.consumer():
        until(lambda: place.depth("antenna") == len(sent), what="every message is in the fallback queue")
    assert [place.depth(queue) for queue in SPLIT] == [0] * len(SPLIT)
    assert ids(place, "antenna") == sent

    # Publishers that still split, also delayed, reach the fallback queue alone, and its worker restarts nothing.
    worker = place.worker("antenna", "--concurrency", "1", ANTENNA_ROUTING="single")
    until(lambda: place.depth("antenna") == 0, what="it has taken them all")
    _nothing_is_left_to_move(place, settings)
    worker.stop()
    left = place.depth("antenna")
    place.send(f"{T}.succeed", queue="antenna-ingest", expires=1)
    place.send(f"{T}.succeed", queue="antenna-ingest", countdown=1, expires=1)
    with place.consumer():
        until(lambda: place.depth("antenna") == left + 2)
    assert place.depth("antenna-ingest") == 0

    # A worker that comes back takes its key again, so that no delayed message is in two queues.
    place.worker("antenna-ingest")
    back = place.send(f"{T}.succeed", queue="antenna-ingest", countdown=1)
    until(lambda: place.ran("succeed", id=back, consumed_from="antenna-ingest"))
    assert place.depth("antenna") == left + 2


def _nothing_is_left_to_move(place: Place, settings) -> None:
    """Check what a rollout says after the rollback, while the fallback queue's worker runs."""
    # The fallback queue keeps its bindings when a split queue is deleted.
    with place.app.connection_for_write() as connection, connection.channel() as channel:
        channel.queue_delete(SPLIT[-1])
    stage = place.queues("rollout", routing="single").json
    assert stage["name"] == "rolled back"
    assert "nothing is left to move" in stage["next_step"]

    if place.is_rabbitmq:  # Elsewhere the bindings are read from the broker itself.
        url, settings.RABBITMQ_MANAGEMENT_URL = settings.RABBITMQ_MANAGEMENT_URL, ""
        done = place.queues("rollout", check=False, routing="single")
        settings.RABBITMQ_MANAGEMENT_URL = url
        assert (done.code, done.json["name"]) == (1, "undeclared")
        assert "was not checked: RABBITMQ_MANAGEMENT_URL is not set" in done.json["next_step"]


def send(place: Place, number: int, countdown: int | None, **options: int) -> str:
    return place.send(f"{T}.succeed", queue=SPLIT[number % len(SPLIT)], countdown=countdown, **options)


def ids(place: Place, queue: str) -> set[str]:
    with place.app.connection_for_read() as connection:
        channel = connection.channel()
        found = set()
        while (raw := channel.basic_get(queue, no_ack=False)) is not None:
            found.add(raw.headers["id"])
        return found


@on_every_broker
def test_live_check_finds_what_is_wrong(place: Place, db: None):
    place.queues("declare")
    with place.app.connection_for_write() as connection, connection.channel() as channel:
        Queue("antena-ingest", durable=True)(channel).declare()
        Producer(channel).publish("x", routing_key="antena-ingest")
    place.send(f"{T}.succeed", exchange="antenna", routing_key="nowhere")

    def found() -> dict[str, str] | None:
        done = place.queues("check", "--live", check=False)
        assert done.code == 1
        rows = {row["name"]: row["sentence"] for row in done.json}
        # RabbitMQ's management API counts messages every five seconds.
        return rows if {"unknown-queue", "unrouted"} <= rows.keys() else None

    rows = until(found)
    assert "Did you mean 'antenna-ingest'?" in rows["unknown-queue"]
    assert "start" in rows["no-consumer"]
    assert "no-worker" in rows


@pytest.mark.parametrize("place", ON_FOLDER, indirect=True)
@pytest.mark.django_db(transaction=True)
def test_paused_queue_is_not_reported_as_without_its_consumer(place: Place):
    queue = "antenna-interactive"
    place.use_test_database()
    place.queues("declare")
    place.worker(queue)
    place.queues("pause", queue, "--why", "a full disk")

    def found() -> dict[str, str]:
        return {row["name"]: row["sentence"] for row in place.queues("check", "--live", check=False).json}

    rows = found()
    assert "a full disk" in rows["paused"]
    assert f"queues resume {queue}" in rows["paused"]
    assert queue not in rows.get("no-consumer", "")
    place.queues("resume", queue)
    assert "paused" not in found()


def test_live_check_without_the_management_api_says_what_it_could_not_see(place: Place, db: None, settings):
    place.queues("declare")
    settings.RABBITMQ_MANAGEMENT_URL = ""
    done = place.queues("check", "--live", check=False)
    unseen = [row for row in done.json if row["level"] == "unseen"]
    assert ["RABBITMQ_MANAGEMENT_URL is not set" in row["sentence"] for row in unseen] == [True]


@on_every_broker
def test_dead_letter_counts_of_an_undeclared_broker_are_one_sentence(place: Place):
    done = place.queues("dead-letters", check=False)
    assert done.code == 1
    assert "no queue 'antenna-ingest.dlq'" in done.error
    assert "run 'manage.py queues declare'" in done.error
    assert ORIGIN_HEADER not in done.error
