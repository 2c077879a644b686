"""Constraints of the database."""

import pytest
from django.db import IntegrityError, transaction
from django.utils import timezone

from ami.main.models import Classification, Detection, Event, Occurrence
from tests.support.product import factories

pytestmark = [pytest.mark.django_db, pytest.mark.sqlite]


def refused(save):
    with pytest.raises(IntegrityError), transaction.atomic():
        save()


def test_one_detection_per_capture_algorithm_and_box_hazard_4():
    capture = factories.capture(factories.station())
    factories.detection(capture, [1, 2, 3, 4])
    refused(lambda: factories.detection(capture, [1.001, 2, 3, 4]))


def test_one_null_marker_per_capture_and_algorithm():
    capture = factories.capture(factories.station())
    factories.null_marker(capture)
    refused(lambda: factories.null_marker(capture))


def test_bulk_created_detections_have_their_key_and_meet_the_constraint():
    capture = factories.capture(factories.station())
    rows = [Detection(source_image=capture, detection_algorithm=factories.detector(), bbox=[1, 2, 3, 4]) for _ in "ab"]
    Detection.objects.bulk_create(rows, ignore_conflicts=True)
    assert list(Detection.objects.values_list("bbox_key", flat=True)) == ["1.00,2.00,3.00,4.00"]


def test_a_key_that_contradicts_its_box_is_refused():
    detection = factories.detection(factories.capture(factories.station()))
    refused(lambda: Detection.objects.filter(pk=detection.pk).update(bbox_key="null"))


def test_one_classification_per_detection_and_algorithm_hazard_4():
    detection = factories.detection(factories.capture(factories.station()))
    Classification.objects.create(detection=detection, algorithm=factories.classifier())
    refused(lambda: Classification.objects.create(detection=detection, algorithm=factories.classifier()))


def test_one_occurrence_per_detection_and_none_without_incident_44():
    capture = factories.capture(factories.station())
    found = factories.occurrence(capture)
    place = {"project": capture.project, "deployment": capture.deployment}
    refused(lambda: Occurrence.objects.create(detection=found.detection, **place))
    refused(lambda: Occurrence.objects.create(detection=None, **place))
    found.detection.delete()
    assert not Occurrence.objects.exists()


def test_one_capture_per_deployment_and_path():
    station = factories.station()
    factories.capture(station, path="a.jpg")
    refused(lambda: factories.capture(station, path="a.jpg"))


def test_one_event_per_deployment_and_day():
    station = factories.station()
    Event.objects.create(project=station.project, deployment=station, group_by="2026-06-01")
    refused(lambda: Event.objects.create(project=station.project, deployment=station, group_by="2026-06-01"))


def test_a_null_marker_is_no_detection():
    factories.null_marker(factories.capture(factories.station()))
    assert not Detection.objects.real().exists()


def test_updated_at_moves_with_update_fields_incident_43():
    station = factories.station()
    before = timezone.now()
    station.name = "Another"
    station.save(update_fields=["name"])
    station.refresh_from_db()
    assert station.updated_at >= before


def test_a_person_signs_in_with_any_case_of_their_address():
    person = factories.user()
    assert type(person).objects.get_by_natural_key(person.email.upper()) == person
