"""Parameters and paths of every API view: none is dropped silently, and both spellings of a path answer."""

import pytest
from django.urls import URLPattern, URLResolver, get_resolver
from rest_framework.test import APIClient

from ami.main.api.parameters import KnownParameters
from tests.support.product.job_setup import World, new_world

#: The list of endpoints, and the schema.
PLAIN = {"APIRootView", "SchemaView"}


@pytest.fixture
def world(db) -> World:
    return new_world()


@pytest.fixture
def client(world: World) -> APIClient:
    client = APIClient()
    client.force_authenticate(world.user)
    return client


def views(patterns, prefix="") -> dict[str, type]:
    """Return the classes of the API's views by their name."""
    found = {}
    for each in patterns:
        path = f"{prefix}{each.pattern}"
        if isinstance(each, URLResolver):
            found |= views(each.url_patterns, path)
        elif isinstance(each, URLPattern) and path.startswith("api/") and (view := getattr(each.callback, "cls", None)):
            found[view.__name__] = view
    return found


def test_every_view_of_the_api_knows_its_parameters():
    found = views(get_resolver().url_patterns)
    assert len(found) > 10
    assert {name for name, view in found.items() if not issubclass(view, KnownParameters)} == PLAIN


@pytest.mark.parametrize(
    "path",
    ["projects", "deployments", "events", "captures", "captures/collections", "detections", "occurrences", "taxa"]
    + ["jobs", "exports", "ml/pipelines", "ml/algorithms", "ml/processing_services"],
)
def test_lists_warn_of_what_they_do_not_read(client: APIClient, path: str):
    known = client.get(f"/api/v2/{path}/?limit=3&page_size=2&offset=0&format=json")
    assert (known.status_code, "Warning" in known) == (200, False), known.headers
    assert "Unknown parameter 'qqqq'" in client.get(f"/api/v2/{path}/?qqqq=1")["Warning"]


@pytest.mark.parametrize("path", ["captures", "occurrences", "taxa", "ml/pipelines", "ml/processing_services", "jobs"])
def test_lists_are_narrowed_by_either_name_of_the_project(client: APIClient, world: World, path: str):
    for name in ("project", "project_id"):
        assert client.get(f"/api/v2/{path}/?{name}=999999").json()["count"] == 0
        assert "Warning" not in client.get(f"/api/v2/{path}/?{name}={world.project.pk}")


def test_both_spellings_of_a_path_answer_without_a_redirect(client: APIClient, world: World):
    job = world.running(world.captures(1))
    for path in ("jobs", f"jobs/{job.pk}", "projects", f"projects/{world.project.pk}/pipelines", "schema"):
        either = [client.get(f"/api/v2/{path}{slash}?project={world.project.pk}") for slash in ("", "/")]
        assert [answer.status_code for answer in either] == [200, 200], path
    body = {"batch_size": 1}
    either = [client.post(f"/api/v2/jobs/{job.pk}/cancel{slash}", body, format="json") for slash in ("", "/")]
    assert [answer.status_code for answer in either] == [200, 200]
    for path in ("nothing", "nothing/", "jobs//", "jobs/x"):
        assert client.get(f"/api/v2/{path}").status_code == 404
    assert client.get("/api/v2/jobs?limit=1").json()["results"][0]["id"] == job.pk


def test_links_of_a_page_have_the_slash(client: APIClient, world: World):
    for _ in range(3):
        world.job([])
    assert "/api/v2/jobs/?limit=1" in client.get("/api/v2/jobs?page_size=1").json()["next"]
