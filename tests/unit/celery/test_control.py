"""A worker that was cut off comes back beside its own old control queue, which the broker still keeps for it."""

from typing import Any

from tests.support.place import celery_at

HOST = "ingest@w1"


def test_incident_5_each_connection_of_a_worker_has_a_control_queue_of_its_own(app: Any):
    with celery_at("amqp://"):
        names = {app.control.mailbox.get_queue(HOST).name for _ in range(2)}
    assert len(names) == 2
    assert all(name.startswith(f"{HOST}.") and name.endswith(".pidbox") for name in names)


def test_control_queue_keeps_its_name_on_other_brokers(app: Any):
    with celery_at("memory://"):
        assert app.control.mailbox.get_queue(HOST).name == f"{HOST}.celery.pidbox"
