"""The levers: a button for who may, a form with a reason, the operation and its entry; a viewer gets 403."""

import pytest
from celery import current_app
from django.conf import settings
from django.test import Client
from django.urls import reverse
from kombu import Producer

from ami.console.levers import LEVERS
from ami.queues.models import AuditEntry, DesiredState
from tests.support import console
from tests.support.brokers import celery_at

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("figures")]
QUEUE = settings.ANTENNA_TOPOLOGY.workloads[0].queue
OTHER = settings.ANTENNA_TOPOLOGY.workloads[2].queue


@pytest.fixture(autouse=True)
def broker():
    with celery_at("objectstore+memory://console-levers"):
        yield


def form(verb: str, target: str = QUEUE) -> str:
    return reverse("console:lever", args=[verb, target])


def test_viewer_sees_no_button_on_any_page(viewer):
    for address in (reverse("console:overview"), reverse("console:queue", args=[QUEUE])):
        shown = viewer.get(address).content.decode()
        assert "/lever/" not in shown
        assert "/peek/" not in shown


@pytest.mark.parametrize("verb", sorted(LEVERS))
def test_viewer_gets_403_and_nothing_changes(viewer, verb):
    assert viewer.get(form(verb)).status_code == 403
    assert viewer.post(form(verb), {"why": "because"}).status_code == 403
    assert not DesiredState.objects.exists()
    assert not AuditEntry.objects.exists()


def test_viewer_may_not_look_at_messages(viewer):
    address = reverse("console:peek", args=[QUEUE])
    assert (viewer.get(address).status_code, viewer.post(address).status_code) == (403, 403)


def test_operator_has_the_buttons_of_own_permissions(db):
    shown = console.client_of("pause_queue").get(reverse("console:overview")).content.decode()
    assert form("pause") in shown
    assert "/lever/cancel/" not in shown


def test_queue_is_paused_for_an_hour_with_its_reason(db):
    client = console.client_of("pause_queue")
    back = reverse("console:queue", args=[QUEUE])
    answer = client.post(form("pause"), {"why": "a new disk", "until": "3600", "next": back})
    assert (answer.status_code, answer["Location"]) == (302, back)
    wish = DesiredState.objects.get()
    assert (wish.name, wish.aspect, wish.value, wish.why) == (QUEUE, "paused", 1, "a new disk")
    assert 3500 < (wish.until - wish.since).total_seconds() < 3700
    assert f"Pause: {QUEUE}." in client.get(back).content.decode()
    entry = AuditEntry.objects.get()
    assert (entry.verb, entry.source, entry.why) == ("pause", "console", "a new disk")


def test_grave_operation_without_a_reason_is_refused(operator):
    answer = operator.post(form("purge"), {"why": " "})
    assert answer.status_code == 400
    assert "Give a reason" in answer.content.decode()
    assert not AuditEntry.objects.exists()


def test_refusal_is_shown_in_the_form_with_what_was_entered(operator):
    answer = operator.post(form("move"), {"why": "to the <others>", "to": QUEUE})
    assert answer.status_code == 400
    shown = answer.content.decode()
    assert "is where the messages are" in shown
    assert "to the &lt;others&gt;" in shown


@pytest.mark.parametrize(
    ("given", "says"), [({"to": ""}, "Fill in"), ({"to": OTHER, "limit": "-1"}, "is not a number")]
)
def test_wrong_field_is_refused(operator, given, says):
    answer = operator.post(form("move"), given)
    assert answer.status_code == 400
    assert says in answer.content.decode()


def test_unknown_duration_is_refused(operator):
    assert operator.post(form("pause"), {"until": "1e9"}).status_code == 400
    assert not DesiredState.objects.exists()


def test_messages_are_moved_and_purged(operator):
    publish(QUEUE, 3)
    assert operator.post(form("move"), {"to": OTHER, "limit": "1"}).status_code == 302
    assert operator.post(form("purge"), {"why": "test"}).status_code == 302
    after = dict(AuditEntry.objects.values_list("verb", "after"))
    assert (after["move"]["moved"], after["purge"]["purged"]) == (1, 2)


def test_unreachable_broker_is_said_in_the_form(operator):
    with celery_at("amqp://nobody:wrong@127.0.0.1:1//"):
        answer = operator.post(form("purge"), {"why": "test"})
    assert answer.status_code == 503
    assert "Broker operation failed" in answer.content.decode()
    assert "wrong@" not in answer.content.decode()


def test_task_of_an_odd_id_is_cancelled(operator):
    assert operator.post(form("cancel", "a/b"), {"why": "stuck"}).status_code == 302
    assert DesiredState.objects.get().name == "a/b"


def test_unknown_operation_is_not_found(operator):
    assert operator.get(form("explode")).status_code == 404


@pytest.mark.parametrize("to", ["https://evil.example/", "//evil.example", "javascript:alert(1)", "\\\\evil.example"])
def test_form_leads_back_to_this_site_alone(operator, to):
    answer = operator.post(form("pause"), {"next": to})
    assert answer["Location"] == reverse("console:overview")


def test_forged_form_is_refused(operator):
    strict = Client(enforce_csrf_checks=True)
    strict.cookies = operator.cookies
    assert strict.post(form("pause")).status_code == 403
    assert not DesiredState.objects.exists()


def test_look_at_messages_is_recorded(operator):
    publish(QUEUE, 2)
    address = reverse("console:peek", args=[QUEUE])
    assert "id-0" not in operator.get(address).content.decode()
    assert "id-0" in operator.post(address).content.decode()
    entry = AuditEntry.objects.get()
    assert (entry.verb, entry.target, entry.after) == ("peek", f"queue {QUEUE}", {"seen": 2})


def publish(queue: str, count: int) -> None:
    with current_app.connection_for_write() as connection:
        channel = connection.default_channel
        channel.queue_declare(queue, durable=True)
        channel.queue_declare(OTHER, durable=True)
        producer = Producer(channel)
        for number in range(count):
            headers = {"task": "ami.jobs.tasks.run_job", "id": f"id-{number}"}
            producer.publish([[], {}, {}], exchange="", routing_key=queue, headers=headers)
