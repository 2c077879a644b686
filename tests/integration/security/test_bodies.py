"""Bodies that are too large, too deep or not JSON: a 4xx, never a 500, and no stored value breaks a list."""

import gzip
import json

import pytest
from rest_framework.test import APIClient

DEEP = '{"name": "x", "params": ' + '{"a":' * 5000 + "1" + "}" * 5000 + "}"
PARAMS = {
    "nul": '{"a": "b\\u0000c"}',
    "nul in a key": '{"a\\u0000": 1}',
    "lone surrogate": '{"a": "\\ud800"}',
    "infinity by exponent": '{"a": 1e999}',
    "NaN": '{"a": NaN}',
    "Infinity": '{"a": -Infinity}',
    "five thousand digits": '{"a": ' + "9" * 5000 + "}",
    "deep": '{"a": ' + "[" * 900 + "]" * 900 + "}",
    "very deep": '{"a": ' + "[" * 100_000 + "]" * 100_000 + "}",
}


def post(client, path, text, content_type="application/json", **headers):
    return client.generic("POST", f"/api/v2/{path}", text, content_type=content_type, **headers)


@pytest.mark.parametrize("path", ["jobs/", "captures/collections/", "exports/"])
def test_invalid_json_is_a_400_and_the_list_still_works(mine, path):
    project, client = mine.world.project.pk, mine.client
    field = {"jobs/": "params", "captures/collections/": "kwargs", "exports/": "filters"}[path]
    head = f'{{"name": "x", "project": {project}, "job_type_key": "regroup_events", "format": "occurrences_simple_csv"'
    for name, params in PARAMS.items():
        answer = post(client, path, f'{head}, "{field}": {params}}}')
        assert answer.status_code == 400, (name, answer.content[:200])
        assert client.get(f"/api/v2/{path}").status_code == 200, name


@pytest.mark.parametrize(
    ("kind", "field"), [("projects", "default_filters_score_threshold"), ("deployments", "latitude")]
)
def test_nan_or_infinity_is_a_400_and_the_row_still_works(mine, kind, field):
    address, client = f"/api/v2/{kind}/{mine.rows[kind].pk}/", mine.client
    for value in ('"nan"', '"inf"', '"-Infinity"', "1e999", "NaN", "9" * 400, '"1e999"', "[]", "{}"):
        answer = client.generic("PATCH", address, f'{{"{field}": {value}}}', content_type="application/json")
        assert answer.status_code == 400, (value, answer.content[:200])
        assert client.get(address).status_code == 200, value


@pytest.mark.parametrize("field", ["project", "pipeline", "deployment", "limit", "delay", "name", "job_type_key"])
def test_field_of_wrong_type_or_size_is_not_a_500(mine, field):
    client = mine.client
    for value in ("1e999", "9" * 30, "-1", "true", '"x"', "[1]", "{}", '"\\u0000"', "1.5"):
        body = {"name": '"x"', "project": str(mine.world.project.pk), "job_type_key": '"regroup_events"', field: value}
        text = "{" + ", ".join(f'"{key}": {item}' for key, item in body.items()) + "}"
        assert post(client, "jobs/", text).status_code in (201, 400), value


NO_OBJECTS = (
    "",
    "x",
    "{",
    "[]",
    "null",
    "1",
    '"x"',
    "\ufeff{}",
    "\x00",
    b"\xff\xfe",
    b"\x1f\x8b\x08",
    DEEP,
    "[" * 200_000,
)


@pytest.mark.parametrize("where", ["jobs/", "exports/", "result", "tasks", "pipelines", "reprocess", "sync-all"])
def test_body_that_is_not_an_object_is_a_400(mine, where):
    path, client = (
        {
            "result": f"jobs/{mine.job.pk}/result/",
            "tasks": f"jobs/{mine.job.pk}/tasks/",
            "pipelines": f"projects/{mine.world.project.pk}/pipelines/",
            "reprocess": f"captures/{mine.capture.pk}/reprocess/",
            "sync-all": "deployments/sync-all/",
        }.get(where, where),
        mine.client,
    )
    for text in NO_OBJECTS:
        if where == "tasks" and not text or where == "reprocess" and text in ("", "[]", "null", "1", '"x"'):
            continue  # these need no body
        answer = post(client, path, text)
        assert answer.status_code == 400, (text[:20], answer.status_code, answer.content[:200])


@pytest.mark.parametrize(
    "text", ["", "x", "[]", "null", "[" * 4000, '{"email": "a\\u0000@b.org", "password": "x"}', '{"email": {}}']
)
def test_invalid_login_bodies_are_4xx(db, text):
    client = APIClient(raise_request_exception=False)
    assert post(client, "auth/token/login/", text).status_code == 400
    assert post(client, "auth/token/login/", DEEP).status_code == 413, "the sign-in accepts at most 4 KiB"


@pytest.mark.parametrize(
    "content_type", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"]
)
def test_only_json_is_read(mine, content_type):
    assert post(mine.client, "jobs/", "name=x", content_type).status_code == 415
    answer = post(mine.client, f"jobs/{mine.job.pk}/result/", "results=x", content_type)
    assert answer.status_code in (400, 415)


REGISTRATION = {"processing_service_name": "worker", "pipelines": []}


@pytest.mark.parametrize(
    "body",
    [
        {**REGISTRATION, "processing_service_name": "a\0b"},
        {"pipelines": [{"name": "a\0", "slug": "s", "version": 1}]},
        {"pipelines": [{"name": "n", "slug": "s\0", "version": 1}]},
        {"pipelines": [{"name": "n", "slug": "s", "version": 10**30}]},
        {"pipelines": [{"name": "n", "slug": "s", "version": 2**40}]},
        {"pipelines": [{"name": "n", "slug": "s", "version": 1, "description": "\0"}]},
        {
            "pipelines": [
                {"name": "n", "slug": "s", "version": 1, "stages": [{"key": "k", "name": "n", "params": [{"a": "\0"}]}]}
            ]
        },
    ],
)
def test_unstorable_registration_is_a_400(mine, body):
    path = f"projects/{mine.world.project.pk}/pipelines/"
    assert post(mine.client, path, json.dumps({**REGISTRATION, **body})).status_code == 400


@pytest.mark.parametrize("number", ["NaN", "1e999", "-Infinity"])
def test_a_registration_with_an_infinite_number_is_a_400(mine, number):
    category_map = {"labels": ["a"], "data": [{"index": "NUMBER"}]}
    algorithm = {"name": "n", "key": "k", "task_type": "classification", "category_map": category_map}
    body = {**REGISTRATION, "pipelines": [{"name": "n", "slug": "s", "version": 1, "algorithms": [algorithm]}]}
    text = json.dumps(body).replace('"NUMBER"', number)
    assert post(mine.client, f"projects/{mine.world.project.pk}/pipelines/", text).status_code == 400


@pytest.mark.parametrize("number", ["NaN", "1e999"])
def test_results_with_an_infinite_number_are_refused(mine, number):
    result = {**mine.world.found(mine.capture), "errors": [{"a": "NUMBER"}], "algorithms": {}}
    text = json.dumps({"results": [{"reply_subject": "r", "result": result}]}).replace('"NUMBER"', number)
    [task] = post(mine.client, f"jobs/{mine.job.pk}/result/", text).json()["tasks"]
    assert (task["status"], "finite" in task["reason"] or "infinite" in task["reason"]) == ("refused", True)


@pytest.mark.parametrize("subject", ["a\0b", "x" * 2000])
def test_unstorable_reply_subject_is_refused(mine, subject):
    body = {"results": [{"reply_subject": subject, "result": mine.world.found(mine.capture)}]}
    [task] = post(mine.client, f"jobs/{mine.job.pk}/result/", json.dumps(body)).json()["tasks"]
    assert (task["status"], task["reply_subject"]) == ("refused", "")


def test_too_large_results_are_a_413_by_length_or_by_reading(mine, settings):
    settings.ANTENNA_RESULT_MAX_BYTES = 1000
    path = f"jobs/{mine.job.pk}/result/"
    assert post(mine.client, path, "x" * 1001).status_code == 413
    assert post(mine.client, path, "x" * 1001, CONTENT_LENGTH="").status_code in (400, 413)


@pytest.mark.parametrize("path", ["auth/token/login/", "jobs/", "projects/", "exports/", "deployments/sync-all/"])
def test_too_large_body_is_a_413_also_before_login(mine, settings, path):
    settings.DATA_UPLOAD_MAX_MEMORY_SIZE = 10_000
    client = APIClient(raise_request_exception=False) if "login" in path else mine.client
    body = json.dumps({"name": "x" * 20_000, "email": "a@b.org", "password": "x"})
    assert post(client, path, body).status_code == 413


def test_a_gzip_bomb_is_not_unpacked(mine):
    bomb = gzip.compress(b"[" * 50_000_000, 9)
    for path in ("jobs/", f"jobs/{mine.job.pk}/result/"):
        assert post(mine.client, path, bomb, HTTP_CONTENT_ENCODING="gzip").status_code == 400


QUERIES = (
    "limit=-1",
    "limit=99999999999999999999",
    "offset=1e9",
    "offset=99999999999",
    "project=%00",
    "project=1;drop",
    "name=%00",
    "status=%00",
    "logs_limit=x",
    "pipeline__slug__in=%00,%ff",
    "ids_only=1&limit=1e9",
    "ids_only=1&pipeline__slug__in=" + "a," * 5000,
)
KEYS = ("0", "9" * 18, "9" * 30, "9" * 5000, "-1", "%00", "..%2f..", "1e3", "١")


def test_invalid_queries_are_not_a_500(mine):
    client = mine.client
    for query in QUERIES:
        for path in ("jobs/", "captures/", "projects/", f"jobs/{mine.job.pk}/"):
            assert client.get(f"/api/v2/{path}?{query}").status_code in (200, 400), (path, query[:40])


def test_invalid_keys_are_a_404(mine):
    client = mine.client
    for key in KEYS:
        for path in ("jobs/{}/", "jobs/{}/result/", "projects/{}/pipelines/", "captures/{}/reprocess/", "projects/{}/"):
            method = "POST" if path.count("/") > 2 and "projects" not in path else "GET"
            answer = client.generic(method, f"/api/v2/{path.format(key)}", "{}", content_type="application/json")
            assert answer.status_code in (404, 400), (path, key[:40])
