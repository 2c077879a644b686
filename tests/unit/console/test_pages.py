"""The pages of the console: they open for staff, comply with the policy of pages, and cost few statements."""

from dataclasses import replace

import pytest
from django.conf import settings
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from ami.telemetry.snapshots.shape import Quantiles
from tests.support import console
from tests.support.product.page_policy import PAGE, Inline, policy_of

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("figures")]

QUEUE = settings.ANTENNA_TOPOLOGY.workloads[0].queue
ADDRESSES = {
    "overview": lambda: reverse("console:overview"),
    "queue": lambda: reverse("console:queue", args=[QUEUE]),
    "queue of a week": lambda: reverse("console:queue", args=[QUEUE]) + "?span=7d",
    "lever": lambda: reverse("console:lever", args=["pause", QUEUE]),
    "grave lever": lambda: reverse("console:lever", args=["purge", QUEUE]),
    "peek": lambda: reverse("console:peek", args=[QUEUE]),
}


@pytest.fixture(params=ADDRESSES)
def address(request):
    return ADDRESSES[request.param]()


def test_page_opens_and_complies_with_the_policy(operator, address):
    answer = operator.get(address)
    assert answer.status_code == 200
    assert policy_of(answer) == PAGE
    seen = Inline()
    seen.feed(answer.content.decode())
    assert seen.found == []


def test_page_costs_at_most_fifteen_statements(address):
    client = console.client_of("pause_queue", "purge_queue", "peek_queue")
    with CaptureQueriesContext(connection) as queries:
        assert client.get(address).status_code == 200
    assert len(queries) <= 15


@pytest.mark.parametrize("person", ["nobody", "user who is not staff"])
def test_page_is_for_staff_alone(address, person):
    client = Client() if person == "nobody" else console.client_of(is_staff=False)
    answer = client.get(address)
    assert answer.status_code == 302
    assert answer["Location"].startswith(reverse("admin:login"))


@pytest.mark.parametrize("is_known", [False, True])
def test_lists_and_their_levers_are_for_staff_alone(db, is_known):
    client = console.client_of(is_staff=False) if is_known else Client()
    names = ("letters", "letter_list", "replays", "schedule", "audit", "handbook", "workers", "calls")
    single = (("letter", 1), ("letter_edit", 1), ("letter_group", "c0ffee"), ("task", "t"), ("worker", "w@a"))
    addresses = [reverse(f"console:{name}") for name in names]
    for address in (*addresses, *(reverse(f"console:{name}", args=[each]) for name, each in single)):
        for answer in (client.get(address), client.post(address, {"verb": "discard", "ids": ["1"], "why": "mine"})):
            assert (answer.status_code, answer.headers.get("Location", "")[:13]) == (302, "/admin/login/"), address


def test_unknown_queue_is_not_found(operator):
    assert operator.get(reverse("console:queue", args=["antena"])).status_code == 404


def test_pages_of_the_queues_models_still_open(operator):
    assert operator.get(reverse("admin:queues_worker_changelist")).status_code == 200
    assert operator.get(reverse("admin:queues_letter_changelist")).status_code == 200


def test_queue_in_which_nothing_was_counted_is_shown(operator, figures, monkeypatch):
    bare = tuple(replace(queue, per_minute={}, waits=Quantiles(), runs=Quantiles()) for queue in figures.queues)
    console.show(monkeypatch, replace(figures, queues=bare))
    assert operator.get("/admin/queues/").status_code == 200
    assert operator.get(f"/admin/queues/queue/{bare[0].queue}/").status_code == 200
