"""The admin's index, the number of queries of its lists, and its access control; pages: test_every_page.py."""

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from tests.support.product import admin_rows, factories
from tests.support.product.admin_pages import MODELS, address

MOST_QUERIES = 20


@pytest.fixture
def pages(db, settings):
    """A superuser's browser."""
    client = Client()
    client.force_login(factories.user(is_staff=True, is_superuser=True))
    return client


def test_the_index_and_each_app_open(pages):
    answer = pages.get(reverse("admin:index"))
    labels = {app["app_label"] for app in answer.context["app_list"]}
    assert labels >= {"main", "jobs", "ml", "exports", "queues", "django_celery_beat"}
    for label in labels:
        assert pages.get(reverse("admin:app_list", args=[label])).status_code == 200


def test_list_queries_do_not_grow_with_rows(pages):
    admin_rows.everything()
    pages.get(reverse("admin:index"))
    few = {model.__name__: queries(pages, model) for model in MODELS}
    for _ in range(9):
        admin_rows.everything()
    many = {model.__name__: queries(pages, model) for model in MODELS}
    assert {name: (few[name], asked) for name, asked in many.items() if asked > few[name]} == {}
    assert max(many.values()) <= MOST_QUERIES


def queries(pages, model):
    with CaptureQueriesContext(connection) as asked:
        assert pages.get(address(model, "changelist")).status_code == 200
    return len(asked)


def test_admin_needs_staff(db):
    visitor = Client()
    for model in MODELS:
        assert visitor.get(address(model, "changelist")).status_code == 302
    visitor.force_login(factories.user())
    for model in MODELS:
        assert visitor.get(address(model, "changelist")).status_code == 302
