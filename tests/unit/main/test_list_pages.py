"""Pages of the API's lists: bounded offsets, cursors, and counts that are estimates above a bound."""

from datetime import timedelta

import pytest
from django.db import connection

from ami.main.api import pagination
from ami.main.models import Occurrence, SourceImage, SourceImageCollection
from ami.main.services import bounded_counts
from tests.support.product import factories

pytestmark = [pytest.mark.django_db, pytest.mark.sqlite]
BASE = "/api/v2"


def follow(client, path):
    """Return the keys of every page, following `next`."""
    pages = []
    while path:
        answer = client.get(path)
        assert answer.status_code == 200, answer.content
        pages.append([row["id"] for row in answer.json()["results"]])
        path = answer.json()["next"]
    return pages


@pytest.fixture
def captures(project):
    """Captures of two stations: with the same time, with a time of their own, and without one."""
    times = [factories.NIGHT] * 4 + [factories.NIGHT + timedelta(seconds=index) for index in range(4)] + [None] * 4
    stations = [factories.station(project) for _ in "ab"]
    return [factories.capture(stations[index % 2], time) for index, time in enumerate(times)]


def test_cursor_reads_every_row_once_in_the_order_of_the_list(client, captures):
    by_offset = follow(client, f"{BASE}/captures/?limit=5")
    by_cursor = follow(client, f"{BASE}/captures/?limit=5&cursor=")
    assert by_cursor == by_offset
    assert sum(by_cursor, []) == list(SourceImage.objects.values_list("pk", flat=True))
    assert [len(page) for page in by_cursor] == [5, 5, 2]


@pytest.mark.parametrize("limit", [1, 2, 3, 7])
def test_cursor_passes_equal_and_missing_scores(client, project, limit):
    station = factories.station(project)
    for score in (0.1 + 0.2, None, 0.5, None, 0.5, 0.5, 1.0):
        found = factories.occurrence(factories.capture(station), factories.taxon(), 0.9)
        Occurrence.objects.filter(pk=found.pk).update(determination_score=score)
    pages = follow(client, f"{BASE}/occurrences/?limit={limit}&cursor=")
    assert sum(pages, []) == list(Occurrence.objects.values_list("pk", flat=True))


def test_a_list_over_several_projects_is_merged_in_its_order(client, owner, captures):
    for index in range(3):
        station = factories.station(factories.project(owner=owner))
        factories.capture(station, factories.NIGHT + timedelta(milliseconds=500 * index))
        factories.capture(station, None)
    factories.capture(factories.station())
    mine = SourceImage.objects.filter(project__owner=owner)
    for path in ("?limit=4", "?limit=4&cursor="):
        assert sum(follow(client, f"{BASE}/captures/{path}"), []) == list(mine.values_list("pk", flat=True))
    assert client.get(f"{BASE}/captures/?limit=4").json()["count"] == 18


@pytest.mark.parametrize("path", ["projects", "deployments", "captures", "captures/collections", "occurrences", "taxa"])
def test_every_list_has_a_cursor(client, captures, path):
    factories.occurrence(captures[0], factories.taxon())
    factories.occurrence(captures[1], factories.taxon())
    page = client.get(f"{BASE}/{path}/?cursor=&limit=1").json()
    assert {"count", "count_is_estimate", "next", "previous", "next_cursor", "results"} == set(page)
    everything = [row["id"] for row in client.get(f"{BASE}/{path}/").json()["results"]]
    assert sum(follow(client, f"{BASE}/{path}/?cursor=&limit=1"), []) == everything


@pytest.mark.parametrize(
    "cursor",
    [
        "x",
        "W10",
        "WzEsMl0",
        "WyJ4IiwyXQ",
        "WzEsIjIiXQ",
        "W251bGwsMWUzXQ",
        "W1tdLDJd",
        "a" * 5000,
        "WyJcdTAwMDAiLDFd",
    ],
)
def test_wrong_cursor_is_refused_with_its_field(client, captures, cursor):
    for path in ("captures", "detections", "deployments"):
        answer = client.get(f"{BASE}/{path}/?cursor={cursor}")
        # A number is a text, too: it is a position in a list of names.
        if answer.status_code != 200 or path != "deployments":
            assert answer.status_code == 400
            assert list(answer.json()) == ["cursor"]


def test_offset_above_the_bound_names_the_cursor(client):
    assert client.get(f"{BASE}/captures/?offset=10000").status_code == 200
    answer = client.get(f"{BASE}/captures/?offset=10001")
    assert answer.status_code == 400
    assert "cursor" in answer.json()["offset"][0]


def test_next_of_the_last_page_by_offset_is_a_cursor(client, captures, monkeypatch):
    monkeypatch.setattr(pagination, "LARGEST_OFFSET", 5)
    assert "offset=4" in client.get(f"{BASE}/captures/?limit=4").json()["next"]
    last = client.get(f"{BASE}/captures/?limit=4&offset=4").json()["next"]
    assert "cursor=" in last
    assert "offset" not in last
    assert sum(follow(client, f"{BASE}/captures/?limit=4"), []) == list(
        SourceImage.objects.values_list("pk", flat=True)
    )


def test_count_above_the_bound_is_an_estimate_on_postgresql(client, captures, monkeypatch):
    exact = client.get(f"{BASE}/captures/?limit=2").json()
    assert (exact["count"], exact["count_is_estimate"]) == (12, False)
    monkeypatch.setattr(bounded_counts, "EXACT_UP_TO", 10)
    many = client.get(f"{BASE}/captures/?limit=2").json()
    if connection.vendor == "postgresql":
        assert many["count"] > 10
        assert many["count_is_estimate"] is True
    else:
        assert (many["count"], many["count_is_estimate"]) == (12, False)
    whole = client.get(f"{BASE}/captures/?limit=20").json()
    assert (whole["count"], whole["count_is_estimate"]) == (12, False)


# --- search by path


def test_captures_are_found_by_a_part_of_their_path(client, project):
    station = factories.station(project)
    wanted = factories.capture(station, path="night/IMG_0042.jpg")
    factories.capture(station, path="night/IMG_0043.jpg")
    assert follow(client, f"{BASE}/captures/?path=img_0042") == [[wanted.pk]]
    assert client.get(f"{BASE}/captures/?path=42").json()["path"] == ["'42': must be 3 to 200 characters without NUL."]


@pytest.mark.skipif(connection.vendor != "postgresql", reason="SQLite has one kind of search")
def test_paths_are_found_by_their_beginning_without_trigrams(client, project):
    with connection.cursor() as cursor:
        cursor.execute("DROP INDEX captures_by_path")
        cursor.execute("CREATE INDEX captures_by_path ON main_sourceimage (upper(path) text_pattern_ops)")
    wanted = factories.capture(factories.station(project), path="night/IMG_0042.jpg")
    assert follow(client, f"{BASE}/captures/?path=NIGHT") == [[wanted.pk]]
    assert follow(client, f"{BASE}/captures/?path=0042") == [[]]


# --- captures of a set


def test_captures_of_a_set_are_those_of_a_visible_one(client, project, captures):
    mine = SourceImageCollection.objects.create(name="mine", project=project)
    mine.images.add(*captures[::2])
    other = SourceImageCollection.objects.create(name="other", project=factories.project())
    other.images.add(captures[0])
    assert sum(follow(client, f"{BASE}/captures/?collection={mine.pk}&limit=4"), []) == [c.pk for c in captures[::2]]
    assert client.get(f"{BASE}/captures/?collection={other.pk}").json()["count"] == 0
    assert client.get(f"{BASE}/captures/?collection=x").status_code == 400


def test_detections_of_a_station_are_listed_by_its_occurrences(client, project, captures):
    found = [factories.occurrence(capture, factories.taxon(), 0.9).detection for capture in captures[:5]]
    factories.null_marker(captures[0])
    other = factories.occurrence(factories.capture(factories.station()), factories.taxon(), 0.9)
    for station in {capture.deployment_id for capture in captures}:
        keys = [each.pk for each in found if each.source_image.deployment_id == station]
        assert sum(follow(client, f"{BASE}/detections/?deployment={station}&limit=2&cursor="), []) == keys
        assert client.get(f"{BASE}/detections/?deployment={station}&limit=1").json()["count"] == len(keys)
    assert client.get(f"{BASE}/detections/?deployment={other.deployment_id}").json()["count"] == 0
    assert client.get(f"{BASE}/detections/?deployment=x").status_code == 400
