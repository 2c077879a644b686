"""The product's way to publish many tasks: after the commit, each with an id that is known before."""

from typing import Any

import pytest
from celery import Signature
from django.db import transaction

from ami.celery import bulk_publisher
from ami.queues.publish import publish_each_for_user, publish_many, signature
from ami.topology.router import ORIGIN_HEADER

AUDIT, EXPORT = "ami.jobs.tasks.audit_jobs", "ami.exports.tasks.run_export"


@pytest.fixture
def published(monkeypatch: pytest.MonkeyPatch) -> list[Signature]:
    """What reaches the bulk publisher."""
    found: list[Signature] = []

    def publish(_: Any, signatures: Any) -> list[str]:
        new = list(signatures)
        found.extend(new)
        return [each.id for each in new]

    monkeypatch.setattr(bulk_publisher, "publish_many", publish)
    return found


@pytest.mark.django_db(transaction=True)
def test_many_are_published_after_commit_with_ids_known_before(published: list[Signature]):
    with transaction.atomic():
        ids = publish_many(signature(AUDIT) for _ in range(3))
        assert published == []
    assert [each.id for each in published] == ids
    assert len(set(ids)) == 3


@pytest.mark.django_db(transaction=True)
def test_rolled_back_transaction_publishes_none_of_many(published: list[Signature]):
    with transaction.atomic():
        publish_many([signature(AUDIT), signature(AUDIT)])
        transaction.set_rollback(True)
    assert published == []


@pytest.mark.django_db(transaction=True)
def test_many_outside_a_transaction_are_published_at_once(published: list[Signature]):
    given = [signature(EXPORT, export_id=7, origin="beat", headers={"waits": 1}, countdown=5), signature(AUDIT, 1)]
    assert publish_many(given) == [each.id for each in published]
    first, second = published
    assert (first.kwargs, first.options["countdown"]) == ({"export_id": 7}, 5)
    assert first.options["headers"] == {"waits": 1, ORIGIN_HEADER: "beat"}
    assert (second.args, "headers" in second.options) == ((1,), False)


@pytest.mark.django_db(transaction=True)
def test_empty_list_in_a_transaction_reaches_no_broker(published: list[Signature]):
    with transaction.atomic():
        assert publish_many([]) == []
        assert transaction.get_connection().run_on_commit == []


@pytest.mark.django_db(transaction=True)
def test_user_gets_id_and_queue_of_each_of_many(published: list[Signature]):
    answers = publish_each_for_user(EXPORT, [{"export_id": 1}, {"export_id": 2}])
    assert [each.task_id for each in answers] == [each.id for each in published]
    assert {each.queue for each in answers} == {"antenna-interactive"}
    assert [each.kwargs for each in published] == [{"export_id": 1}, {"export_id": 2}]
    assert {each.options["headers"][ORIGIN_HEADER] for each in published} == {"person"}
