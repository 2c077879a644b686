"""What becomes of each old message: where it runs, with what, and why it does not."""

import inspect
import json
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote

import pytest
from kombu import Connection, Consumer, Queue

from ami.jobs.models import StoredResult
from ami.main.models import SourceImageCollection
from tests.support.adopting import fates
from tests.support.adopting.old_antenna import OldAntenna, old_antenna
from tests.support.place import Place, Ran, management, until
from tests.support.product.job_setup import new_world

RESULT = f"{fates.J}.process_nats_pipeline_result"
SUCCEED = "celery.backend_cleanup"  # A task that both applications have.


@pytest.fixture
def old(place: Place, db: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[OldAntenna]:
    """The old application, and a split that is declared."""
    place.queues("declare")
    with old_antenna(place.folder) as made:
        monkeypatch.setenv("OLD_BROKER_URL", made.url)
        yield made


def adopt(place: Place, *argv: str, check: bool = True) -> Ran:
    return place.queues("adopt", "--from-env", "OLD_BROKER_URL", *argv, check=check)


def taken(place: Place, queue: str) -> list[Any]:
    """Take every message from a queue of the split."""
    found = []
    with place.app.connection_for_read() as connection, connection.channel() as channel:
        while (raw := channel.basic_get(queue, no_ack=True)) is not None:
            found.append(channel.message_to_python(raw))
    return found


def test_each_old_task_runs_is_dropped_or_is_kept_as_a_dead_letter(place: Place, old: OldAntenna):
    world = new_world()
    (capture,) = world.captures(1)
    job = world.running([capture])
    collection = SourceImageCollection.objects.create(name="all", project=world.project)
    sent = {}
    for task, (args, kwargs) in fates.arguments(world, job.pk, capture, collection.pk).items():
        sent[old.send(task, *args, kwargs=kwargs, retries=2)] = task
    for task in (*fates.DROPPED, *fates.BURIED):
        old.send(task, 1)
    assert len(sent) + len(fates.DROPPED) + len(fates.BURIED) == 23

    planned = {row["task"]: row for row in adopt(place, "--dry-run").json["planned"]}
    assert old.waiting() == 23
    assert StoredResult.objects.count() == 0
    report = adopt(place).json
    assert {row["task"]: row for row in report["run"]["messages"]} == planned
    assert old.waiting() == 0
    assert {
        task: (row["runs_as"], row["to"]) for task, row in planned.items() if row["outcome"] == "runs"
    } == fates.RUNS
    assert {task for task, row in planned.items() if row["outcome"] == "dropped"} == set(fates.DROPPED)
    assert {task for task, row in planned.items() if row["outcome"] == "dead letter"} == set(fates.BURIED)

    for queue in {queue for _, queue in fates.RUNS.values()}:
        for message in taken(place, queue):
            task, (args, kwargs, _) = place.app.tasks[message.headers["task"]], message.decode()
            inspect.signature(task.run).bind(*args, **kwargs)
            assert message.headers["retries"] == 2
            assert fates.RUNS[sent.pop(message.headers["id"])] == (task.name, queue)
    assert sent == {}
    letters = place.queues("dead-letters", "antenna.dlq", "--limit", "99").json
    assert {(letter["task"], letter["reason"]) for letter in letters} == {
        (task, "not adopted") for task in fates.BURIED
    }
    assert all(letter["detail"] == planned[letter["task"]]["why"] for letter in letters)


def test_result_inside_a_message_is_stored_and_its_key_is_sent(place: Place, old: OldAntenna):
    world = new_world()
    (capture,) = world.captures(1)
    job = world.running([capture])
    data = world.found(capture)
    data["detections"][0]["timestamp"] = datetime(2026, 6, 1, 22, tzinfo=UTC)
    # More than a worker accepts in one body.
    data["detections"][0]["classifications"][0]["logits"] = [0.123456789] * 500_000
    kwargs = {"job_id": job.pk, "result_data": data, "reply_subject": "$JS.ACK.x"}
    task_id = old.send(RESULT, kwargs=kwargs)

    adopt(place)
    (message,) = taken(place, "antenna-ingest")
    row = StoredResult.objects.get()
    assert message.decode()[1] == {"job_id": job.pk, "result_key": row.key, "reply_subject": "$JS.ACK.x"}
    assert (message.headers["id"], row.task_id, row.publishes) == (task_id, task_id, 1)

    # The same result again is the same row: what it does, it does once.
    old.send(RESULT, kwargs=kwargs)
    adopt(place)
    assert StoredResult.objects.count() == 1


def test_message_about_rows_that_are_missing_is_kept_with_the_reason(place: Place, old: OldAntenna):
    world = new_world()
    capture, other = world.captures(2)
    job = world.running([capture])
    old.send(f"{fates.J}.run_job", kwargs={"job_id": 4711})
    old.send(RESULT, kwargs={"job_id": 4711, "result_data": world.found(capture), "reply_subject": "r"})
    old.send(RESULT, kwargs={"job_id": job.pk, "result_data": world.found(other), "reply_subject": "r"})
    old.send("ami.tasks.regroup_events", 4711)
    old.send("ami.jobs.tasks.run_jobs", 1)
    adopt(place)

    def details(queue: str) -> list[str]:
        return sorted(letter["detail"] for letter in place.queues("dead-letters", queue).json)

    assert details("antenna-interactive.dlq") == ["this database lacks its job: job 4711"]
    assert details("antenna-ingest.dlq") == [
        f"its job has no rows for these images: job {job.pk} has none of [{other.pk}]",
        "this database lacks its job: job 4711",
    ]
    assert details("antenna-housekeeping.dlq") == ["this database lacks its station: deployment_id is 4711"]
    assert details("antenna.dlq") == ["no task of this name is known"]
    # Once the row is there, a replay runs it under the name that the task has now.
    place.queues("dead-letters", "antenna-housekeeping.dlq", "--replay")
    (message,) = taken(place, "antenna-housekeeping")
    assert message.headers["task"] == "ami.main.tasks.regroup_events"
    assert message.decode()[1] == {"deployment_id": 4711}
    assert "antenna_reason_kind" not in message.headers


def test_eta_is_kept_by_the_broker_and_what_has_expired_is_dropped(place: Place, old: OldAntenna):
    due = time.time() + 4
    later = old.send(SUCCEED, eta=datetime.fromtimestamp(due, UTC), expires=datetime.now(UTC) + timedelta(hours=1))
    # RabbitMQ drops what has expired at the head of a classic queue itself; Celery writes the header, too.
    old.send(SUCCEED, headers={"expires": "2026-01-01T00:00:00+00:00"})
    report = adopt(place).json["run"]["messages"]
    assert [(row["outcome"], row["messages"]) for row in report] == [("dropped", 1), ("runs", 1)]
    queue = report[1]["to"]
    assert place.depth(queue) == 0
    until(lambda: place.depth(queue), 20, "its time has come")
    assert time.time() >= due
    (message,) = taken(place, queue)
    assert message.headers["id"] == later
    assert message.headers["eta"]
    assert message.headers["expires"]


def test_other_consumers_of_the_old_queues_are_refused(place: Place, old: OldAntenna):
    old.send(SUCCEED)
    with Connection(old.url) as connection, Consumer(connection, [Queue("jobs")], callbacks=[print]):
        done = adopt(place, check=False)
    assert done.code == 1
    assert "jobs has 1" in done.error
    assert "Stop the old workers" in done.error
    assert old.waiting() == 1


def test_consumer_that_appears_ends_the_following_without_a_loss(place: Place, old: OldAntenna):
    old.send(SUCCEED)

    def consume() -> None:
        until(lambda: old.waiting() == 0)
        with Connection(old.url) as connection, Consumer(connection, [Queue("jobs")], callbacks=[print]):
            ended.wait(30)

    ended = threading.Event()
    thread = threading.Thread(target=consume)
    thread.start()
    try:
        done = adopt(place, "--follow", check=False)
    finally:
        ended.set()
        thread.join()
    assert done.code == 1
    assert "jobs has 1" in done.error
    assert place.depth("antenna-housekeeping") == 1


def test_lost_connection_to_the_old_broker_is_opened_again(
    place: Place, old: OldAntenna, capfd: pytest.CaptureFixture[str]
):
    vhost = old.url.rpartition("/")[2]

    said: list[str] = []

    def is_cut() -> bool:
        # RabbitMQ lists a connection some seconds after it was opened; the bridge's may not be the first.
        for each in management("GET", f"vhosts/{vhost}/connections").json():
            management("DELETE", f"connections/{quote(each['name'])}")
        said.append(capfd.readouterr().err)
        return "Trying again in" in "".join(said)

    def interrupt() -> None:
        until(lambda: old.waiting() == 0)
        until(is_cut, what="the bridge's connection is cut")
        with old_antenna(place.folder, old.url) as again:
            again.send(SUCCEED)

    old.send(SUCCEED)
    thread = threading.Thread(target=interrupt)
    thread.start()
    done = adopt(place, "--follow", "--silent-minutes", "0.2")
    thread.join()
    assert sum(row["messages"] for row in done.json["run"]["messages"]) == 2
    assert "Trying again in" in "".join(said)
    assert place.depth("antenna-housekeeping") == 2


def test_wrong_source_is_refused_with_exit_code_2_and_no_secret(
    place: Place, old: OldAntenna, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
):
    refused = place.queues("adopt", "--from-env", old.url, check=False)
    assert refused.code == 2
    assert old.url not in refused.error
    assert "takes the name of a variable" in refused.error

    refused = place.queues("adopt", "--from-env", "NO_SUCH_URL", check=False)
    assert refused.code == 2
    assert "is not set here" in refused.error
    assert "NO_SUCH_URL" not in refused.error

    # The same virtual host by another name.
    monkeypatch.setenv("OLD_BROKER_URL", place.broker_url.replace("127.0.0.1", "localhost"))
    refused = adopt(place, check=False)
    assert refused.code == 2
    assert (
        "the old publishers and the quorum queue antenna cannot share a virtual host; create another" in refused.error
    )

    monkeypatch.delenv("OLD_BROKER_URL")
    secret = tmp_path / "url"
    secret.write_text(old.url)
    monkeypatch.setenv("OLD_BROKER_URL_FILE", str(secret))
    assert adopt(place, "--dry-run").code == 0
    monkeypatch.setenv("OLD_BROKER_URL_FILE", "")
    monkeypatch.setenv("OLD_BROKER_URL", "redis://:s3cret@127.0.0.1")
    refused = adopt(place, check=False)
    assert refused.code == 2
    assert "s3cret" not in refused.error
    monkeypatch.setenv("OLD_BROKER_URL", "amqp://antenna:s3cret@127.0.0.1:1/old")
    refused = adopt(place, check=False)
    assert refused.code == 1
    assert "correct OLD_BROKER_URL" in refused.error
    assert "s3cret" not in refused.error


def test_queues_that_are_missing_are_named(place: Place, db: None, monkeypatch: pytest.MonkeyPatch):
    with old_antenna(place.folder) as old:
        monkeypatch.setenv("OLD_BROKER_URL", old.url)
        refused = adopt(place, check=False)
        assert refused.code == 1
        assert "run 'manage.py queues declare'" in refused.error
        place.queues("declare")
        for more in ((), ("--dry-run",)):
            refused = adopt(place, "--queue", "nothing", *more, check=False)
            assert refused.code == 1
            assert "has none of the queues nothing" in refused.error
        # An Antenna before April 2026 has one queue.
        assert adopt(place, "--queue", "antenna", "--queue", "nothing").json["end"] == "empty"
        assert json.dumps(adopt(place).json).count("old-") == 1
