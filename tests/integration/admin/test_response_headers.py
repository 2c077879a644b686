"""Security headers on every kind of response, and the compliance of every admin page."""

from pathlib import Path

import pytest
from django.contrib import admin
from django.test import Client
from django.urls import reverse

from config import urls
from tests.support.product import factories
from tests.support.product.page_policy import DATA, PAGE, policy_of


@pytest.fixture
def pages(db):
    client = Client(raise_request_exception=False)
    client.force_login(factories.user(is_staff=True, is_superuser=True))
    return client


def test_no_script_or_style_of_the_admin_is_from_another_origin():
    for path in (Path(admin.__file__).parent / "static").rglob("*.css"):
        text = path.read_text()
        assert "data:" not in text, path
        assert "url(http" not in text, path


@pytest.fixture
def raising(monkeypatch):
    def fail(*args, **options):
        raise RuntimeError("broken view")

    [live] = [pattern for pattern in urls.urlpatterns if str(pattern.pattern) == "livez"]
    monkeypatch.setattr(live, "callback", fail)


def bad_request(client, settings):
    settings.ALLOWED_HOSTS = ["antenna.example.org"]
    return client.get("/livez", HTTP_HOST="evil.example")


def forged(client, settings):
    strict = Client(enforce_csrf_checks=True)
    return strict.post(reverse("admin:login"), {"username": "a", "password": "b"})


ANSWERS = {
    "text": (lambda client, settings: client.get("/livez"), 200, DATA),
    "json": (lambda client, settings: client.get("/api/v2/projects/"), 200, DATA),
    "schema": (lambda client, settings: client.get("/api/v2/schema/"), 200, DATA),
    "json that is not allowed": (lambda client, settings: Client().get("/api/v2/projects/"), 401, DATA),
    "json of a wrong body": (
        lambda client, settings: client.post("/api/v2/projects/", "{", content_type="application/json"),
        400,
        DATA,
    ),
    "no such page": (lambda client, settings: client.get("/nowhere"), 404, DATA),
    "no such row": (lambda client, settings: client.get("/api/v2/projects/999999/"), 404, DATA),
    "no such page of the admin": (lambda client, settings: client.get("/admin/nowhere/"), 404, PAGE),
    "redirect to the login": (lambda client, settings: Client().get("/admin/"), 302, PAGE),
    "path without its last slash": (lambda client, settings: client.get("/api/v2/projects"), 200, DATA),
    "host that is not ours": (bad_request, 400, DATA),
    "forged form": (forged, 403, PAGE),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_every_kind_of_answer_has_the_headers(pages, settings, name):
    call, status, policy = ANSWERS[name]
    answer = call(pages, settings)
    assert answer.status_code == status
    assert_headers(answer, policy)


def assert_headers(answer, policy: dict[str, str]) -> None:
    headers = {name: answer.headers.get(name) for name in EXPECTED}
    assert headers == EXPECTED
    assert policy_of(answer) == policy
    assert "geolocation=()" in answer.headers["Permissions-Policy"]


EXPECTED = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}


def test_an_error_of_the_server_has_the_headers(pages, raising):
    answer = pages.get("/livez")
    assert answer.status_code == 500
    assert_headers(answer, DATA)


def test_static_files_have_the_headers(db, settings, tmp_path):
    settings.STATIC_ROOT = str(tmp_path)
    (tmp_path / "drawing.svg").write_text("<svg xmlns='http://www.w3.org/2000/svg'><script>alert(1)</script></svg>")
    answer = Client(raise_request_exception=False).get("/static/drawing.svg")
    assert answer.status_code == 200
    assert_headers(answer, DATA)
    answer.close()


def test_html_from_anywhere_but_the_admin_is_data(pages, monkeypatch):
    """Under the policy of pages a stored HTML file could run scripts of our origin."""
    from django.http import HttpResponse

    [live] = [pattern for pattern in urls.urlpatterns if str(pattern.pattern) == "livez"]
    monkeypatch.setattr(live, "callback", lambda request: HttpResponse("<script src=/media/x.js></script>"))
    answer = pages.get("/livez")
    assert answer.headers["Content-Type"].startswith("text/html")
    assert policy_of(answer) == DATA
