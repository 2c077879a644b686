"""Sentry's library is a cost of those alone who have a DSN, and what it sends is redacted."""

import json

import pytest

from config import sentry

WITHOUT = (
    "import django, sys; django.setup(); import config.celery_app, config.urls; print('sentry_sdk' in sys.modules)"
)


@pytest.mark.processes
def test_without_a_dsn_nothing_of_the_library_is_imported(run):
    done = run("-c", WITHOUT)
    assert (done.stdout.split()[-1:], done.returncode) == (["False"], 0), done.stderr


@pytest.mark.processes
def test_dsn_without_its_key_is_refused_without_its_text(run):
    done = run("-c", "import django; django.setup()", SENTRY_DSN="https://sentry.invalid/hunter2")
    assert done.returncode == 1
    assert "Configuration refused: SENTRY_DSN lacks its key or its project" in done.stderr
    assert "hunter2" not in done.stderr


def test_event_is_redacted_at_every_depth():
    event = {
        "message": "no answer of amqp://antenna:hunter2pass@rabbitmq",
        "breadcrumbs": {"values": [{"data": {"url": "https://a.example/f?signature=hunter2pass"}, "n": 3}]},
        "request": {"headers": [("X-Api-Key", "token=hunter2pass")], "cookies": "hunter2pass"},
        "extra": {"sys.argv": ("x", "--password=hunter2pass"), "a_secret": "hunter2pass"},
    }
    found = json.dumps(sentry.masked(event))
    assert "hunter2pass" not in found
    assert "amqp://antenna:********@rabbitmq" in found


def test_event_of_a_task_with_deeply_nested_arguments_is_sent():
    deep: object = "hunter2pass"
    for _ in range(900):
        deep = [deep]
    found = json.dumps(sentry.masked({"message": "it failed", "extra": {"args": deep}}))
    assert "it failed" in found
    assert "hunter2pass" not in found
