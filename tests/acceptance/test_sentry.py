"""Errors are reported to Sentry where it is configured, without secrets."""

import importlib
import json
from collections.abc import Iterator

import pytest

from tests.support import forked_python
from tests.support.monitoring.sentry_server import SentryServer, sentry_server
from tests.support.place import Place, new_place, until

S = "tests.support.worker_tasks.secret"
CANARY, QUEUE = "canary-9c2f51aa", "antenna"

#: A view that fails under the deployment's WSGI application, with secrets wherever a request has some.
FAILING_VIEW = """
import os
from config.wsgi import application  # First: it sets Django up.
from django.test import RequestFactory
from django.urls import path
import sentry_sdk
from config import urls

canary = os.environ["CANARY"]

def fail(request):
    local = request.GET["token"]
    raise RuntimeError(f"https://user:{canary}@host is away, password={local}")

urls.urlpatterns.append(path("fails", fail))
headers = {"Authorization": f"Token {canary}", "Cookie": f"sessionid={canary}"}
request = RequestFactory().get(f"/fails?token={canary}", headers=headers)
answered = []
list(application(request.environ, lambda status, _: answered.append(status)))
assert answered == ["500 Internal Server Error"], answered
sentry_sdk.flush(10)
"""


@pytest.fixture
def server() -> Iterator[SentryServer]:
    with sentry_server() as found:
        yield found


@pytest.fixture
def place(server: SentryServer) -> Iterator[Place]:
    with new_place("sentry") as made:
        changed = {"SENTRY_DSN": server.dsn, "SENTRY_ENVIRONMENT": "a-test", "ANTENNA_VERSION": "1.2.3"}
        made.environment |= {**changed, "ANTENNA_EXTRA_TASKS": S, "CANARY": CANARY}
        made.queues("declare")
        yield made


def test_failing_task_of_a_real_worker_is_reported_without_its_secrets(place: Place, server: SentryServer):
    worker = place.worker(QUEUE)
    use_token = importlib.import_module(S).use_token
    with place.app.connection_for_write() as connection:
        task = use_token.apply_async((0, CANARY), queue=QUEUE, connection=connection).id

    def reported() -> list[dict]:
        found = [each for each in server.events() if each.get("tags", {}).get("celery_task_id") == task]
        return [each for each in found if "exception" in each]

    event = until(reported, 40, "the failure is reported")[0]
    assert worker.stop() == 0
    (error,) = [each for each in event["exception"]["values"] if each["mechanism"]["type"] == "celery"]
    assert (error["type"], error["value"]) == ("ValueError", "the service refused ********")
    assert (event["release"], event["environment"]) == ("1.2.3", "a-test")
    assert event["extra"]["celery-job"] == {"task_name": f"{S}.use_token", "args": [0, "********"], "kwargs": {}}
    assert CANARY not in json.dumps(event)
    assert not [body for body in server.bodies if CANARY.encode() in body]


def test_failing_view_is_reported_without_the_request_s_secrets(place: Place, server: SentryServer):
    done = forked_python.run(["-c", FAILING_VIEW], env=place.environment)
    assert done.returncode == 0, done.stderr
    (event,) = server.events()
    error = event["exception"]["values"][-1]
    assert (error["type"], error["value"]) == ("RuntimeError", "https://user:********@host is away, password=********")
    assert event["request"]["url"].endswith("/fails")
    assert event["request"]["query_string"] == "token=********"
    assert event["environment"] == "a-test"
    assert "vars" not in error["stacktrace"]["frames"][-1]
    assert not [body for body in server.bodies if CANARY.encode() in body]
