"""Polls: unchanged figures are 304, what is rendered is shared, and each poll is checked as any request is."""

from dataclasses import replace
from html.parser import HTMLParser

import pytest
from django.conf import settings
from django.contrib.auth import get_user_model
from django.contrib.sessions.models import Session
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone
from django_celery_beat.models import IntervalSchedule, PeriodicTask

from ami.console import page
from ami.queues.models import Replay
from tests.support import console

pytestmark = pytest.mark.django_db
QUEUE = settings.ANTENNA_TOPOLOGY.workloads[0].queue
#: Of the session, the user, and the permissions of the user and of the groups.
CHECKS = 4


def poll(client: Client, etag: str = "", part: str = "overview"):
    address = reverse("console:overview") if part == "overview" else reverse("console:queue", args=[QUEUE])
    headers = {"If-None-Match": etag} if etag else {}
    return client.get(address, {"live": part}, headers=headers)


@pytest.fixture
def watching_client(figures, viewer):
    viewer.get(reverse("console:overview"))
    return viewer


def test_unchanged_part_is_304_for_the_checks_of_any_request(watching_client):
    etag = poll(watching_client)["ETag"]
    with CaptureQueriesContext(connection) as queries:
        answer = poll(watching_client, etag)
    assert (answer.status_code, answer.content, len(queries)) == (304, b"", CHECKS)


def test_rendered_part_is_shared(watching_client, monkeypatch):
    first = poll(watching_client)
    monkeypatch.setattr("ami.console.page.render_to_string", None)
    with CaptureQueriesContext(connection) as queries:
        assert poll(console.client_of()).content == first.content
    assert len([each for each in queries if each["sql"].startswith("SELECT")]) >= CHECKS


def test_rendered_parts_are_bounded(figures, viewer, monkeypatch):
    monkeypatch.setattr(page, "MOST_PARTS", 2)
    for number in range(5):
        viewer.get(reverse("console:overview"), {"live": "overview", "n": number})
    assert len(page.rendered) <= 2


def test_new_figures_are_sent(watching_client, figures, monkeypatch):
    etag = poll(watching_client)["ETag"]
    console.show(monkeypatch, replace(figures, version=8, findings=()))
    answer = poll(watching_client, etag)
    assert (answer.status_code, answer["ETag"] != etag) == (200, True)
    assert "found nothing" in answer.content.decode()


def test_part_is_a_fragment_without_a_form(watching_client):
    shown = poll(watching_client).content.decode()
    assert "<html" not in shown
    assert "csrfmiddlewaretoken" not in shown
    assert QUEUE in shown


def test_permissions_are_not_shared_with_a_viewer(watching_client):
    operator = console.client_of("pause_queue")
    operator.get(reverse("console:overview"))
    assert "/lever/pause/" in poll(operator).content.decode()
    assert "/lever/pause/" not in poll(watching_client, poll(operator)["ETag"]).content.decode()


@pytest.mark.usefixtures("figures")
def test_stranger_is_led_to_the_sign_in(db):
    for client in (Client(), console.client_of(is_staff=False)):
        answer = poll(client)
        assert (answer.status_code, answer.content) == (401, b"")
        assert (
            answer["HX-Redirect"] == f"{reverse('admin:login')}?next={reverse('console:overview').replace('/', '%2F')}"
        )


def test_forged_etag_shows_a_stranger_nothing(watching_client):
    etag = poll(watching_client)["ETag"]
    assert poll(Client(), etag).status_code == 401


def test_who_signed_out_is_checked_at_once(watching_client):
    poll(watching_client)
    key = watching_client.cookies[settings.SESSION_COOKIE_NAME].value
    watching_client.logout()
    watching_client.cookies[settings.SESSION_COOKIE_NAME] = key
    assert poll(watching_client).status_code == 401


def test_session_that_another_process_ended_is_refused(watching_client):
    etag = poll(watching_client)["ETag"]
    Session.objects.all().delete()
    assert poll(watching_client, etag).status_code == 401


def test_lost_permission_counts_at_the_next_poll(figures):
    operator = console.client_of("pause_queue")
    shown = poll(operator)
    assert "/lever/pause/" in shown.content.decode()
    get_user_model().objects.get(pk=operator.session["_auth_user_id"]).user_permissions.clear()
    answer = poll(operator, shown["ETag"])
    assert (answer.status_code, "/lever/pause/" in answer.content.decode()) == (200, False)


PARKED = console.Stop("ada", "", 1.0, what="parked")


@pytest.mark.parametrize(
    ("shown", "seconds"),
    [
        ({}, "5"),
        ({"jobs": (console.JOB,)}, "2"),
        ({"workers": {"parked": PARKED}}, "2"),
        ({"workers": {"parked": PARKED, "state": "parked", "closed_queues": (QUEUE,)}}, "5"),
        ({"workers": {"state": "parked", "closed_queues": (QUEUE,)}}, "2"),
        ({"workers": {}, "queues": {"paused": PARKED}}, "2"),
        ({"workers": {"closed_queues": (QUEUE,)}, "queues": {"paused": PARKED}}, "5"),
        ({"workers": {"closed_queues": (QUEUE,)}}, "2"),
        ({"workers": {"state": "dead", "parked": PARKED}}, "5"),
    ],
    ids=str,
)
def test_page_polls_faster_while_a_job_runs_or_an_operation_waits(figures, viewer, monkeypatch, shown, seconds):
    row = settings.ANTENNA_TOPOLOGY.workloads[0]
    given = {
        "jobs": shown.get("jobs", ()),
        "workers": (console.worker(row.queue, row.service, **shown["workers"]),) if "workers" in shown else (),
        "queues": (console.queue(row, **shown.get("queues", {})),),
    }
    console.show(monkeypatch, replace(figures, **given))
    assert poll(viewer)["Poll-Seconds"] == seconds
    assert f'data-every="{seconds}"' in viewer.get(reverse("console:overview")).content.decode()


@pytest.mark.parametrize("part", ["status", "tasks"])
def test_each_part_of_a_queue_is_polled(figures, viewer, part):
    answer = poll(viewer, part=part)
    assert answer.status_code == 200
    assert poll(viewer, answer["ETag"], part).status_code == 304


def test_part_that_does_not_exist_is_the_whole_page(figures, viewer):
    assert b"<html" in viewer.get(reverse("console:overview"), {"live": "x"}).content


def test_changed_figures_reach_nobody_who_signed_out(watching_client, figures, monkeypatch):
    key = watching_client.cookies[settings.SESSION_COOKIE_NAME].value
    watching_client.logout()
    watching_client.cookies[settings.SESSION_COOKIE_NAME] = key
    console.show(monkeypatch, replace(figures, version=8))
    assert poll(watching_client).status_code == 401


class Focusable(HTMLParser):
    """What can have the focus and has no id."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if (tag in ("a", "button", "input", "select", "summary") or "tabindex" in given) and not given.get("id"):
            self.found.append(f"{tag} {given}")


@pytest.mark.parametrize(
    "address", ["?live=overview", f"queue/{QUEUE}/?live=status", f"queue/{QUEUE}/?live=tasks", "workers/?live=workers"]
)
def test_focus_outlives_a_poll(figures, operator, address):
    # What has the focus gets it again by its id when a poll replaces it.
    seen = Focusable()
    seen.feed(operator.get(reverse("console:overview") + address).content.decode())
    assert seen.found == []


@pytest.mark.parametrize("name", ["schedule", "replays"])
def test_focus_outlives_a_poll_of_a_list(operator, name):
    PeriodicTask.objects.create(
        name="ours", task="a.task", interval=IntervalSchedule.objects.create(every=1, period="days")
    )
    Replay.objects.create(selection={}, total=1, most_pk=1, by="ada", began_at=timezone.now(), until=timezone.now())
    seen = Focusable()
    seen.feed(operator.get(reverse(f"console:{name}"), {"live": "table"}).content.decode())
    assert seen.found == []
