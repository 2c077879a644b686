"""What a browser is told that it may do: on every kind of answer, and kept by every page of the admin."""

from html.parser import HTMLParser
from pathlib import Path

import pytest
from django.contrib import admin
from django.test import Client
from django.urls import reverse

from config import urls
from tests.support.product import admin_rows, factories
from tests.support.product.admin_pages import MODELS, address

OWN, NOTHING = "'self'", "'none'"
PAGE = {
    "default-src": NOTHING,
    **dict.fromkeys(("script-src", "style-src", "img-src", "font-src", "connect-src", "form-action"), OWN),
    **dict.fromkeys(("base-uri", "object-src", "frame-ancestors"), NOTHING),
}
DATA = {**dict.fromkeys(("default-src", "form-action", "base-uri", "frame-ancestors"), NOTHING), "sandbox": ""}


class Inline(HTMLParser):
    """Collects what a strict policy would block."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.forms = 0

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.forms += tag == "form"
        runs = given.get("type", "text/javascript") in ("text/javascript", "module", "")
        if tag == "style" or (tag == "script" and "src" not in given and runs):
            self.found.append(f"inline <{tag}>")
        self.found += [f"{tag} {name}={value}" for name, value in attrs if name.startswith("on") or name == "style"]
        for name in ("src", "action", *(["href"] if tag in ("link", "base") else [])):
            value = given.get(name) or ""
            if tag == "base" or value.startswith(("javascript:", "data:", "//", "http:", "https:")):
                self.found.append(f"{tag} {name}={value}")


@pytest.fixture
def pages(db):
    client = Client(raise_request_exception=False)
    client.force_login(factories.user(is_staff=True, is_superuser=True))
    return client


def policy_of(answer) -> dict[str, str]:
    parts = answer.headers["Content-Security-Policy"].split("; ")
    return {name: value for name, _, value in (part.partition(" ") for part in parts)}


def every_page(pages):
    """Yield each page of the admin: its address and its answer."""
    yield "login", Client().get(reverse("admin:login"))
    yield "index", pages.get(reverse("admin:index"))
    yield "password", pages.get(reverse("admin:password_change"))
    yield "app", pages.get(reverse("admin:app_list", args=["main"]))
    for model in MODELS:
        row = model._default_manager.first()
        yield f"{model.__name__} list", pages.get(address(model, "changelist"))
        for page in ("change", "history", "delete"):
            yield f"{model.__name__} {page}", pages.get(address(model, page, row.pk))
        chosen = {"action": "delete_selected", "_selected_action": [row.pk]}
        yield f"{model.__name__} delete many", pages.post(address(model, "changelist"), chosen)
        yield f"{model.__name__} with errors", pages.post(address(model, "add"), {"_save": "1"})


def test_no_page_of_the_admin_needs_what_its_policy_forbids(pages):
    admin_rows.everything()
    broken, seen = {}, 0
    for name, answer in every_page(pages):
        html = answer.headers.get("Content-Type", "").startswith("text/html")
        if answer.status_code != 200 or not html:
            assert answer.status_code in (302, 403), name
            continue
        seen += 1
        parsed = Inline()
        parsed.feed(answer.content.decode())
        if parsed.found or policy_of(answer) != PAGE:
            broken[name] = parsed.found or policy_of(answer)
    assert broken == {}
    assert seen > 4 * len(MODELS)


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
    "redirect without a slash": (lambda client, settings: client.get("/api/v2/projects"), 301, DATA),
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
    """A stored file that claims to be a page would run scripts of our own origin under the policy of pages."""
    from django.http import HttpResponse

    [live] = [pattern for pattern in urls.urlpatterns if str(pattern.pattern) == "livez"]
    monkeypatch.setattr(live, "callback", lambda request: HttpResponse("<script src=/media/x.js></script>"))
    answer = pages.get("/livez")
    assert answer.headers["Content-Type"].startswith("text/html")
    assert policy_of(answer) == DATA
