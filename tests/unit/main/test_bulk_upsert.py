"""Rows upserted as arrays are those that the ORM writes."""

from datetime import UTC, datetime
from typing import Any

import pytest
from django.db import IntegrityError, connection, transaction
from django.test.utils import CaptureQueriesContext

from ami.main.models import Classification, Detection, Occurrence
from ami.main.services.bulk_upsert import bulk_upsert
from tests.support.product import factories

pytestmark = [pytest.mark.django_db, pytest.mark.sqlite]

WHEN = datetime(2026, 6, 1, 22, 0, 0, 123456, tzinfo=UTC)


@pytest.fixture
def detections() -> list[Detection]:
    capture = factories.capture(factories.station())
    return [factories.detection(capture, [n, 0, 5, 5]) for n in range(3)]


def rows(detections: list[Detection], **fields: Any) -> list[Classification]:
    algorithm = factories.classifier()
    return [Classification(detection=detection, algorithm=algorithm, job_id=1, **fields) for detection in detections]


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"score": 0.1, "scores": [0.1, 1e-300, -0.0], "logits": [], "terminal": False, "timestamp": WHEN},
        {"scores": [1.0] * 3000, "logits": [2.0] * 3000},
    ],
)
def test_every_kind_of_column_is_saved_and_an_existing_row_is_updated(detections: list[Detection], fields) -> None:
    unique, update = ["detection", "algorithm", "job"], [*Classification.LONG_LISTS, "score", "terminal", "timestamp"]
    old = bulk_upsert(rows(detections[:2], score=0.5), unique_fields=unique, update_fields=update)
    made = rows(detections, **fields)
    keys = bulk_upsert(made, unique_fields=unique, update_fields=update)
    assert (keys[:2], len(set(keys))) == (old, 3)
    for key, row in zip(keys, made, strict=True):
        saved = Classification.objects.get(pk=key)
        for name in ("detection_id", "algorithm_id", "score", "scores", "logits", "terminal", "timestamp", "taxon_id"):
            assert getattr(saved, name) == getattr(row, name), name
        assert saved.created_at
        assert saved.updated_at


def test_a_row_that_exists_stays_as_it_is_without_fields_to_update(detections: list[Detection]) -> None:
    place = {"project": detections[0].source_image.project, "deployment": detections[0].source_image.deployment}
    for score in (0.5, 0.6):
        made = [Occurrence(detection=each, determination_score=score, **place) for each in detections]
        assert bulk_upsert(made, unique_fields=["detection"]) == []
    assert list(Occurrence.objects.values_list("determination_score", flat=True)) == [0.5] * 3


def test_it_is_one_statement_that_the_wrappers_of_the_connection_see(detections: list[Detection]) -> None:
    made = rows(detections)
    with CaptureQueriesContext(connection) as asked:
        bulk_upsert(made, unique_fields=["detection", "algorithm", "job"], update_fields=["score"])
        assert bulk_upsert([], unique_fields=["detection"]) == []
    assert len([query for query in asked.captured_queries if "INSERT" in query["sql"]]) == 1


def test_an_error_of_the_database_is_django_s(detections: list[Detection]) -> None:
    made = rows(detections)
    made[0].terminal = None  # type: ignore[assignment]
    with pytest.raises(IntegrityError), transaction.atomic():
        bulk_upsert(made, unique_fields=["detection", "algorithm", "job"], update_fields=["score"])
