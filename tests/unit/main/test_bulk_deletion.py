"""Bulk deletion."""

import pytest
from django.core.files.base import ContentFile
from django.core.files.storage import default_storage

from ami.main.models import Detection, Occurrence, SourceImage
from ami.main.services import bulk_deletion
from tests.support.product import factories
from tests.support.product.factories import Turn
from tests.support.product.stale import marked

pytestmark = [pytest.mark.django_db, pytest.mark.sqlite]


@pytest.fixture(autouse=True)
def media(tmp_path, settings):
    settings.MEDIA_ROOT = str(tmp_path)


def test_captures_are_deleted_with_dependent_rows(django_capture_on_commit_callbacks):
    station = factories.station()
    doomed, kept = factories.capture(station), factories.capture(station)
    crop = default_storage.save("crops/1.jpg", ContentFile(b"crop"))
    factories.occurrence(doomed)
    Detection.objects.update(path=crop)
    factories.occurrence(kept)
    deletion = bulk_deletion.request_deletion("captures", [doomed.pk], None)
    with django_capture_on_commit_callbacks(execute=True):
        assert bulk_deletion.advance_deletion(deletion, Turn())
    assert list(SourceImage.objects.all()) == [kept]
    assert Occurrence.objects.get().detection.source_image == kept
    assert not default_storage.exists(crop)
    assert ("deployment", station.pk) in marked()


def test_an_empty_request_deletes_nothing_hazard_5():
    factories.captures(factories.station(), 3)
    assert bulk_deletion.advance_deletion(bulk_deletion.request_deletion("captures", [], None), Turn())
    assert SourceImage.objects.count() == 3


def test_slices_and_repeats_have_the_same_result(monkeypatch):
    monkeypatch.setattr(bulk_deletion, "STEP", 2)
    captures = factories.captures(factories.station(), 7)
    deletion = bulk_deletion.request_deletion("captures", [capture.pk for capture in captures[:5]], None)
    stale_copy = type(deletion).objects.get(pk=deletion.pk)
    turns = 1
    while not bulk_deletion.advance_deletion(deletion, Turn(1)):
        turns += 1
    assert turns == 3
    assert bulk_deletion.advance_deletion(stale_copy, Turn())
    assert list(SourceImage.objects.order_by("pk")) == captures[5:]
    deletion.refresh_from_db()
    assert deletion.done == 5
    assert deletion.finished_at


def test_occurrence_is_deleted_with_its_detection():
    found = factories.occurrence(factories.capture(factories.station()))
    bulk_deletion.delete(Occurrence, [found.pk])
    assert not Detection.objects.exists()
    assert SourceImage.objects.count() == 1


def test_what_cannot_be_deleted_in_bulk_is_refused():
    with pytest.raises(ValueError, match="captures, occurrences"):
        bulk_deletion.request_deletion("projects", [1], None)
