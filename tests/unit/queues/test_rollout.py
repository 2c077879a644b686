"""The stages that `queues rollout` names after a rollback, on a broker in this process's memory."""

import io
import json
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from django.core.management import call_command

from ami.queues import broker_queues, governors, rollout
from ami.topology.table import FALLBACK
from ami.topology.topology import load
from tests.support.place import celery_at

SINGLE = load({"ANTENNA_ROUTING": "single"})
SPLIT = tuple(queue for queue in SINGLE.queues if queue != FALLBACK)


@pytest.fixture
def channel(app: Any, settings: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    settings.ANTENNA_TOPOLOGY = SINGLE
    monkeypatch.setattr(governors, "INSPECT_SECONDS", 0.1)
    with (
        celery_at(f"objectstore+memory://{uuid.uuid4().hex}"),
        app.connection_for_write() as connection,
    ):
        queues("declare")
        yield connection.default_channel


def queues(*argv: str) -> Any:
    out = io.StringIO()
    call_command("queues", *argv, "--json", stdout=out)
    return json.loads(out.getvalue())


def stage(app: Any, management_url: str = "") -> rollout.Stage:
    with app.connection_for_read() as connection:
        return rollout.stage(SINGLE, connection, management_url)


def test_complete_rollback_leaves_nothing_to_do(channel: Any, app: Any):
    channel.basic_consume(FALLBACK, callback=print)
    assert stage(app).name == "without workers"
    queues("rollback", "--yes")
    found = queues("rollout")
    assert found["name"] == "rolled back"
    assert found["next_step"].startswith("None: rolled back, nothing is left to move.")


def test_split_queues_deleted_after_a_rollback_are_not_missed(channel: Any, app: Any):
    channel.basic_consume(FALLBACK, callback=print)
    queues("rollback", "--yes")
    for queue in SPLIT:
        channel.queue_delete(queue)
    assert stage(app).name == "rolled back"


def test_split_queues_deleted_without_a_rollback_are_undeclared(channel: Any, app: Any):
    channel.basic_consume(FALLBACK, callback=print)
    for queue in SPLIT:
        channel.queue_delete(queue)
    assert stage(app).name == "undeclared"


def test_messages_left_behind_by_a_rollback_are_moved_by_another(channel: Any, app: Any):
    channel.basic_consume(FALLBACK, callback=print)
    queues("rollback", "--yes")
    channel.basic_publish(channel.prepare_message("x"), "", SPLIT[0])
    found = stage(app)
    assert (found.name, found.may_split) == ("rolled back, messages left", False)
    assert found.next_step == f"Run 'manage.py queues rollback' again: {SPLIT[0]} (1 messages) would be stranded."


def test_rollback_without_a_worker_of_the_fallback_queue_is_not_complete(channel: Any, app: Any):
    queues("rollback", "--yes")
    found = stage(app)
    assert (found.name, found.may_split) == ("rolled back, without workers", False)
    assert found.next_step == (
        "Start the workers of antenna (0 messages), which have no consumers: 'python -m ami.topology worker antenna'."
    )


def test_split_worker_that_returns_ends_the_rollback(channel: Any, app: Any):
    channel.basic_consume(FALLBACK, callback=print)
    queues("rollback", "--yes")
    channel.basic_consume(SPLIT[0], callback=print)
    assert stage(app).name == "without workers"


def test_unknown_bindings_are_said_and_change_no_stage(channel: Any, app: Any, monkeypatch: pytest.MonkeyPatch):
    def unknown(*_: Any) -> set[str]:
        raise broker_queues.BindingsUnknown("RABBITMQ_MANAGEMENT_URL is not set")

    monkeypatch.setattr(broker_queues, "bound_keys", unknown)
    found = stage(app)
    assert (found.name, found.may_split) == ("without workers", False)
    assert found.next_step.endswith(
        "Whether this is a finished rollback was not checked: RABBITMQ_MANAGEMENT_URL is not set."
    )
