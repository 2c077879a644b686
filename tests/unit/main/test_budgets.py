"""Budgets of JSON bodies: what counts, what is refused before parsing, and what must fit."""

import gc
import io
import json
import time
import tracemalloc
from contextlib import suppress

import pytest
from django.test import Client
from django.urls import get_resolver
from rest_framework.test import APIClient

from ami.main.api import budgets
from ami.main.api.budgets import CAPTURE_LIST, CAPTURE_SET, LOGIN, ORDINARY, Budget, TooLarge, TooManyElements
from tests.support.product import factories

SMALL = Budget(1000, 20, depth=3)


@pytest.mark.parametrize(
    "text",
    [
        "[1,2,3,4,5,6,7,8,9,0]",
        '{"a": "[[[[{{{{,,,,,,,,,,::::::::"}',
        r'{"a": "\"[[[[[\\", "b": "\\\"[[[[,,,,,,,,,,"}',
        "[[[]]]",
        '"',
        '"\\',
        "",
        "1",
    ],
)
def test_texts_are_not_counted_as_structure(text):
    SMALL.check(text.encode())


@pytest.mark.parametrize(
    "text",
    [
        "[1,2,3,4,5,6,7,8,9,0,1,2,3,4,5,6,7,8,9,0]",
        "[[],[],[],[],[],[],[]]",
        '{"a":1,"b":2,"c":3,"d":4,"e":5,"f":6,"g":7}',
        "[[[[]]]]",
        '{"a":{"b":{"c":{}}}}',
        '"\\"",' * 11,
    ],
)
def test_more_than_the_budget_is_refused(text):
    with pytest.raises(TooManyElements):
        SMALL.check(text.encode())


def test_unopened_brackets_count_too():
    with pytest.raises(TooManyElements):
        SMALL.check(b"]" * 900)


@pytest.mark.parametrize("body", [b'"' + b'\\"' * 500_000, b'"\\' * 500_000, b'"' * 1_000_000, b"\\" * 1_000_000])
def test_counting_is_linear_for_every_text(body):
    began = time.process_time()
    with suppress(TooManyElements):
        Budget(len(body), 10).check(body)
    assert time.process_time() - began < 1


def test_counting_does_not_parse_the_body():
    body = b"[" + b'{"":0},' * 50_000 + b"0]"
    tracemalloc.start()
    Budget(len(body), 5_000_000).check(body)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < len(body)


def test_too_large_body_is_refused_by_length_or_after_one_byte():
    stream = io.BytesIO(b"x" * 5000)
    with pytest.raises(TooLarge):
        SMALL.read(stream, "5000")
    assert stream.tell() == 0
    for lied in ("", "10", "x", "-5", "1e9"):
        stream.seek(0)
        with pytest.raises(TooLarge):
            SMALL.read(stream, lied)
        assert stream.tell() == 1001


def test_only_these_views_have_a_budget_of_their_own():
    views, own = views_of(get_resolver().url_patterns), {}
    for view in views:
        budget = budgets.budget_of(view)
        assert budget.byte_count <= 4 * 1024**2
        if budget is not ORDINARY:
            own[view.__name__] = budget
    assert own == {"LoginView": LOGIN, "JobViewSet": CAPTURE_LIST, "CollectionViewSet": CAPTURE_SET}


def views_of(patterns) -> set[type]:
    found = set()
    for pattern in patterns:
        found |= views_of(getattr(pattern, "url_patterns", ()))
        view = getattr(getattr(pattern, "callback", None), "cls", None)
        found |= {view} if view else set()
    return found


def test_a_job_over_ten_thousand_captures_fits(client, project):
    body = {"name": "x", "project": project.pk, "job_type_key": "regroup_events"}
    body["params"] = {"source_image_ids": [2**63 - 1 - n for n in range(10_000)]}
    answer = client.generic("POST", "/api/v2/jobs/", json.dumps(body), content_type="application/json")
    assert answer.status_code == 201, answer.content[:200]


def test_a_capture_set_of_a_hundred_thousand_captures_fits(client, project):
    kwargs = {"image_ids": [2**63 - 1 - n for n in range(100_000)]}
    body = json.dumps({"name": "x", "project": project.pk, "method": "manual", "kwargs": kwargs}, indent=1)
    path = "/api/v2/captures/collections/"
    assert client.generic("POST", path, body, content_type="application/json").status_code == 201


def test_a_description_as_long_as_it_may_be_fits(client, project):
    path = f"/api/v2/projects/{project.pk}/"
    body = json.dumps({"description": "\U0001f98b" * 10_000})
    assert client.generic("PATCH", path, body, content_type="application/json").status_code == 200


TEXTS = {
    "projects/": ["name", "description"],
    "deployments/": [
        *("name", "description", "time_zone"),
        *("data_source_subdir", "data_source_regex", "data_source_time_format"),
    ],
    "captures/collections/": ["name", "description", "method", "kwargs"],
    "jobs/": ["name", "job_type_key", "params"],
    "exports/": ["format", "filters"],
    "ml/processing_services/": ["name", "endpoint_url", "description"],
    "auth/token/login/": ["email", "password"],
}


@pytest.mark.parametrize("text", ['"a\\ud800"', '"\\uDFFFa"', '"\\u0000"', '["\\ud800"]', '{"a": {"\\ud800": 1}}'])
@pytest.mark.parametrize(("path", "field"), [(path, field) for path, fields in TEXTS.items() for field in fields])
def test_unpaired_surrogate_is_a_400_that_names_the_field(owner, path, field, text):
    client = APIClient(raise_request_exception=False)
    client.force_authenticate(owner)
    answer = client.generic("POST", f"/api/v2/{path}", f'{{"{field}": {text}}}', content_type="application/json")
    assert answer.status_code == 400
    assert list(answer.json()) == [field]


def test_unpaired_surrogate_outside_a_field_is_a_400(client):
    for text in ('{"\\ud800": 1}', '"\\ud800"', '["\\ud800"]'):
        answer = client.generic("POST", "/api/v2/projects/", text, content_type="application/json")
        assert answer.status_code == 400
        assert list(answer.json()) == ["body"]


def test_surrogate_pair_is_text(client):
    body = '{"name": "\\ud83e\\udd8b \\\\ud800 \\\\u0000"}'
    answer = client.generic("POST", "/api/v2/projects/", body, content_type="application/json")
    assert answer.status_code == 201
    assert answer.json()["name"] == "\U0001f98b \\ud800 \\u0000"


@pytest.mark.parametrize(
    "path", ["/api/v2/jobs/?name=%00", "/api/v2/captures/collections/?name=a%00", "/admin/%00/", "/nowhere/%00?a=1"]
)
def test_an_address_with_a_nul_is_a_400(owner, path):
    assert Client(raise_request_exception=False).get(path).status_code == 400


@pytest.mark.parametrize("text", ["%ED%A0%80", "%ff", "%c0%80", "%F4%90%80%80"])
def test_path_that_is_not_text_is_not_a_500(client, owner, text):
    for path in (f"jobs/?job_type_key={text}", f"projects/?name={text}", f"jobs/{text}/", f"{text}/"):
        assert client.get(f"/api/v2/{path}").status_code in (200, 400, 404), path
    browser = Client(raise_request_exception=False)
    assert browser.get(f"/admin/{text}/").status_code in (302, 404)


def test_form_limit_is_smaller_without_a_sign_in(db, settings):
    form = {"username": "a@b.org", "password": "x" * 5000}
    assert Client().post("/admin/login/", form).status_code == 413
    person = factories.user(name="Staff")
    person.is_staff = person.is_superuser = True
    person.save()
    browser = Client()
    browser.force_login(person)
    assert browser.post("/admin/main/project/add/", {"description": "x" * 5000}).status_code == 200
    settings.DATA_UPLOAD_MAX_MEMORY_SIZE = 4500
    assert browser.post("/admin/main/project/add/", {"description": "x" * 5000}).status_code == 413


def test_a_body_without_a_length_is_a_411(client):
    answer = client.generic("POST", "/api/v2/jobs/", "{}", HTTP_TRANSFER_ENCODING="chunked")
    assert answer.status_code == 411


def test_session_needs_the_csrf_header_and_reads_no_body(project, owner):
    browser = Client(enforce_csrf_checks=True)
    browser.force_login(owner)
    browser.cookies["csrftoken"] = "a" * 32
    path, body = "/api/v2/projects/", '{"name": "x"}'
    assert browser.post(path, body, content_type="application/json").status_code == 403
    assert browser.post(path, {"name": "x", "csrfmiddlewaretoken": "a" * 32}).status_code == 415
    answer = browser.post(path, body, content_type="application/json", headers={"X-CSRFToken": "a" * 32})
    assert answer.status_code == 201


@pytest.mark.parametrize("valid", [True, False])
def test_large_body_is_released_after_its_response(client, project, valid):
    option = "image_ids" if valid else "no_option"
    head = f'{{"name": "x", "project": {project.pk}, "method": "manual", "kwargs": {{"{option}": '
    body = f"{head}{json.dumps(list(range(5000)))}}}}}"
    gc.collect()
    gc.disable()
    try:
        path = "/api/v2/captures/collections/"
        answer = client.generic("POST", path, body, content_type="application/json")
        answer.data.clear()  # The answer repeats the list, and the test client keeps the answer.
        held = sum(type(each) is list and each[-1:] == [4999] for each in gc.get_objects())
    finally:
        gc.enable()
    assert (answer.status_code, held) == (201 if valid else 400, 0)
