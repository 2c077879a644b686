"""The copy of the capture's project in its detections."""

import pytest

from ami.main.models import Detection, SourceImage
from tests.support.product import factories

pytestmark = [pytest.mark.django_db, pytest.mark.sqlite]


@pytest.fixture
def capture():
    return factories.capture(factories.station())


def projects(capture):
    return set(capture.detections.values_list("project", flat=True))


@pytest.mark.parametrize("cached", [True, False])
def test_new_detections_have_the_project_of_their_capture(capture, cached, django_assert_num_queries):
    of = {"source_image": capture} if cached else {"source_image_id": capture.pk}
    detector = factories.detector()
    rows = [Detection(**of, detection_algorithm=detector, bbox=[n, 1, 2, 3]) for n in range(3)]
    with django_assert_num_queries(1 if cached else 2):
        Detection.objects.bulk_create(rows)
    factories.detection(capture)
    factories.null_marker(capture)
    assert projects(capture) == {capture.project_id}


def test_detections_follow_a_moved_capture(capture):
    factories.detection(capture)
    capture.project = factories.project()
    capture.save()
    assert projects(capture) == {capture.project_id}
    other = factories.project()
    assert SourceImage.objects.filter(project=capture.project).update(project=other) == 1
    assert projects(capture) == {other.pk}
    capture.project = third = factories.project()
    SourceImage.objects.bulk_update([capture], ["project"])
    assert projects(capture) == {third.pk}


def test_list_has_the_detections_of_visible_projects(client, project):
    mine, other = (
        factories.detection(factories.capture(factories.station(project))),
        factories.detection(factories.capture(factories.station())),
    )
    page = client.get("/api/v2/detections/").json()
    assert [row["id"] for row in page["results"]] == [mine.pk]
    assert client.get(f"/api/v2/detections/?project={project.pk}").json()["count"] == 1
    assert client.get(f"/api/v2/detections/?project={other.source_image.project_id}").json()["count"] == 0
    assert client.get(f"/api/v2/detections/{other.pk}/").status_code == 404
