"""The levers: a button for who may, a form with a reason, the operation and its entry; a viewer gets 403."""

from pathlib import Path

import pytest
from celery import current_app
from django.conf import settings
from django.test import Client
from django.urls import reverse
from django.utils import timezone
from kombu import Producer

from ami.admission import leases, picks
from ami.admission.models import Call, Run
from ami.console.levers import LEVERS
from ami.queues.models import AuditEntry, DesiredState, Worker
from tests.support import admission, console
from tests.support.brokers import celery_at
from tests.support.worker_tasks import admitted

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
@pytest.mark.parametrize("is_known", [False, True])
def test_lever_is_for_staff_who_sign_in(db, verb, is_known):
    client = console.client_of(is_staff=False) if is_known else Client()
    for answer in (client.get(form(verb)), client.post(form(verb), {"why": "because"})):
        assert (answer.status_code, answer["Location"].startswith(reverse("admin:login"))) == (302, True)
    assert not DesiredState.objects.exists()
    assert not AuditEntry.objects.exists()


@pytest.mark.parametrize("verb", sorted(LEVERS))
def test_viewer_gets_403_and_nothing_changes(viewer, verb):
    assert viewer.get(form(verb)).status_code == 403
    assert viewer.post(form(verb), {"why": "because"}).status_code == 403
    assert not DesiredState.objects.exists()
    assert not AuditEntry.objects.exists()


def test_viewer_may_not_look_at_messages(viewer):
    address = reverse("console:peek", args=[QUEUE])
    assert (viewer.get(address).status_code, viewer.post(address).status_code) == (403, 403)


NODE, TASK, RUN = "ingest@here", "ami.main.tasks.purge_old_rows", "some-task"
PACED = admitted.paced.name
#: What each lever that is a wish writes for the target: kind, name, aspect, value; None: a time.
WISHES = {
    "pause": ("queue", QUEUE, "paused", 1),
    "resume": ("queue", QUEUE, "paused", 0),
    "park": ("node", NODE, "parked", 1),
    "unpark": ("node", NODE, "parked", 0),
    "stop": ("node", NODE, "stopped", 1),
    "scale": ("node", NODE, "concurrency", 2),
    "restart": ("node", NODE, "restarted", None),
    "cancel": ("task", RUN, "cancelled", 1),
    "disable": ("task name", TASK, "disabled", 1),
    "enable": ("task name", TASK, "disabled", 0),
    "limit": ("permits", "ami.exports.tasks.run_export", "most", 2),
    "unlimit": ("permits", "ami.exports.tasks.run_export", "most", 0),
    "limit-rate": ("rate", PACED, "most", 2),
    "unlimit-rate": ("rate", PACED, "most", 0),
    "weigh": ("fair key", "project_id=7", "weight", 2),
}
#: The tests of the others.
TESTS = {
    "move": "test_levers.py::test_messages_are_moved_and_purged",
    "purge": "test_levers.py::test_messages_are_moved_and_purged",
    "compact": "test_levers.py::test_stuck_call_is_released_and_waiting_ones_are_merged",
    "release": "test_levers.py::test_stuck_call_is_released_and_waiting_ones_are_merged",
    "run-entry": "test_schedule_page.py::test_entry_that_is_run_now_links_to_its_task",
    "enable-entry": "test_schedule_page.py::test_entry_is_switched_off_and_on_with_its_reason",
    "disable-entry": "test_schedule_page.py::test_entry_is_switched_off_and_on_with_its_reason",
    "misfire": "test_schedule_page.py::test_policy_for_late_ticks_is_chosen_and_shown",
    "stop-replay": "test_letter_pages.py::test_replay_at_a_rate_shows_progress_and_is_stopped",
    "resume-replay": "test_letter_pages.py::test_replay_at_a_rate_shows_progress_and_is_stopped",
}


def test_every_lever_has_a_test_of_what_it_does():
    assert WISHES.keys() | TESTS.keys() == LEVERS.keys()
    for verb, named in TESTS.items():
        file, _, name = named.partition("::")
        text = (Path(__file__).parent / file).read_text()
        assert f"{verb}" in text.partition(f"def {name}(")[2].partition("\ndef ")[0], named


@pytest.mark.parametrize("verb", WISHES)
def test_lever_writes_its_wish_with_the_reason(operator, verb):
    now = timezone.now()
    Worker.objects.create(node=NODE, host="here", queues=[QUEUE], pid=1, started_at=now, seen_at=now)
    kind, name, aspect, value = WISHES[verb]
    if verb == "enable":  # It is refused where nothing is disabled.
        operator.post(form("disable", name))
    answer = operator.post(form(verb, name), {"why": "a <reason>", "count": "2", "most": "2", "weight": "2"})
    assert answer.status_code == 302, answer.content
    wish = DesiredState.objects.get()
    assert (wish.kind, wish.name, wish.aspect, wish.why) == (kind, name, aspect, "a <reason>")
    assert wish.value == value if value is not None else wish.value >= now.timestamp()
    entry = AuditEntry.objects.latest("pk")
    assert (entry.verb, entry.source, entry.why) == (verb.removesuffix("-rate"), "console", "a <reason>")


def test_stuck_call_is_released_and_waiting_ones_are_merged(operator):
    first = admitted.once.delay(key="a", wish=1).id
    leases.acquire([admission.QUEUE], "me")
    picks.pick(picks.staged_tasks(current_app), admission.QUEUE, "me", 9)
    for wish in range(3):
        admitted.once.delay(key="b", wish=wish)
    shown = operator.get(reverse("console:calls")).content.decode()
    assert form("release", first) in shown
    assert operator.post(form("release", first), {"why": "", "drop": ""}).status_code == 400
    assert operator.post(form("release", first), {"why": "stuck"}).status_code == 302
    assert not Run.objects.exists()
    assert operator.post(form("compact", admitted.once.name), {"why": "many"}).status_code == 302
    assert Call.objects.count() == 2
    assert set(AuditEntry.objects.values_list("verb", "source")) == {("release", "console"), ("compact", "console")}


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
    assert f"2 wait in {QUEUE} now." in operator.get(form("purge")).content.decode()
    assert "Fill in" in operator.post(form("purge"), {"why": "test"}).content.decode()
    refused = operator.post(form("purge"), {"why": "test", "count": "3"})
    assert (refused.status_code, "nothing was deleted" in refused.content.decode()) == (400, True)
    assert operator.post(form("purge"), {"why": "test", "count": "2"}).status_code == 302
    after = dict(AuditEntry.objects.values_list("verb", "after"))
    assert (after["move"]["moved"], after["purge"]["purged"]) == (1, 2)


def test_unreachable_broker_is_said_in_the_form(operator):
    with celery_at("amqp://nobody:wrong@127.0.0.1:1//"):
        answer = operator.post(form("purge"), {"why": "test", "count": "2"})
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
