"""The admin's pages of dead letters: groups, one letter, its form, its message; each with its permission."""

from collections.abc import Iterator
from typing import Any

import pytest
from celery import current_app
from django.contrib.auth.models import Permission
from django.test import Client

from ami.queues.models import AuditEntry, DesiredState, Letter, LetterEvent, Replay
from tests.support.brokers import celery_at
from tests.support.dead_letters import TASK, letter
from tests.support.product import factories
from tests.support.product.admin_rows import failure_of

pytestmark = pytest.mark.django_db
LETTERS, REPLAYS = "/admin/queues/letter/", "/admin/queues/replay/"
SECRET = '[["canary-1234"], {}, {}]'


@pytest.fixture(autouse=True)
def broker(settings: Any) -> Iterator[None]:
    settings.ANTENNA_COLLECT_LETTERS = True
    with celery_at("objectstore+memory://admin-letters"):
        current_app.declare_everything()
        yield


def client(*codenames: str) -> Client:
    user = factories.user(is_staff=True)
    views = [f"view_{model}" for model in ("letter", "replay", "taskfailure", "desiredstate")]
    found = Permission.objects.filter(content_type__app_label="queues", codename__in=[*codenames, *views])
    user.user_permissions.set(found)
    made = Client()
    made.force_login(user)
    return made


def act(made: Client, address: str, action: str, keys: list[int], **more: str) -> Any:
    return made.post(address, {"action": action, "_selected_action": keys, **more})


def test_pages_show_the_trail_and_no_message():
    row = letter(1, SECRET)
    made = client()
    pages = [made.get(address) for address in (LETTERS, f"{LETTERS}{row.pk}/change/", REPLAYS)]
    assert [page.status_code for page in pages] == [200] * 3
    assert "No failure of it is on record; the broker says: rejected." in pages[1].content.decode()
    assert "canary" not in "".join(page.content.decode() for page in pages)
    assert made.get(f"{LETTERS}{row.pk}/body/").status_code == 403


def test_letter_without_a_cause_is_counted_and_not_replayed_by_cause():
    row = letter(1)
    Letter.objects.filter(pk=row.pk).update(cause="")
    made = client("replay_letter")
    for address in ("/admin/queues/letters/", "/admin/queues/letters/all/"):
        assert made.get(address).status_code == 200, address


def test_selected_letters_are_replayed_after_the_reason_was_asked():
    keys = [letter(number).pk for number in range(3)]
    made = client("replay_letter")
    assert 'name="why"' in act(made, LETTERS, "replay", keys).content.decode()
    act(made, LETTERS, "replay", keys[:2], confirmed="yes", why="fixed", to="", rate="")
    assert list(Letter.objects.order_by("pk").values_list("state", flat=True)) == ["replayed", "replayed", "dead"]
    assert LetterEvent.objects.filter(what="replayed", why="fixed").count() == 2
    act(made, LETTERS, "replay", keys[2:], confirmed="yes", why="slowly", to="antenna-ingest", rate="0.5")
    slow = Replay.objects.get(why="slowly")
    assert (slow.state, slow.rate, slow.destination) == ("running", 0.5, "antenna-ingest")
    act(made, REPLAYS, "stop", [slow.pk], confirmed="yes", why="enough")
    slow.refresh_from_db()
    assert slow.state == "stopped"
    act(made, LETTERS, "replay", keys[2:], confirmed="yes", why="", to="", rate="fast")
    assert "is not a number" in made.get(LETTERS).content.decode()


def test_letter_that_is_gone_when_the_reason_is_given_costs_no_other():
    gone = letter(1).pk
    letter(2)
    made = client("replay_letter", "discard_letter")
    Letter.objects.filter(pk=gone).delete()
    for action in ("replay", "discard"):
        act(made, LETTERS, action, [gone], confirmed="yes", why="", to="", rate="")
    assert Letter.objects.get().state == "dead"


def test_filter_does_not_tell_a_message_letter_by_letter():
    letter(1, SECRET)
    for name in ("body__regex", "original__regex", "body__gt", "properties__contains"):
        assert client().get(f"{LETTERS}?{name}=canary-1").status_code in (302, 400)


def test_message_is_sent_as_text_and_each_look_is_audited():
    row = letter(1)
    body = client("read_letter_body").get(f"{LETTERS}{row.pk}/body/")
    assert (body.status_code, body["Content-Disposition"]) == (200, f'attachment; filename="letter-{row.pk}.txt"')
    assert AuditEntry.objects.filter(verb="read letter").exists()


def test_task_is_disabled_from_its_failures_and_enabled_again():
    letter(1)
    made = client("disable_task")
    failed = failure_of(TASK)
    act(made, "/admin/queues/taskfailure/", "disable", [failed.pk], confirmed="yes", why="floods", until="")
    wish = DesiredState.objects.get(aspect="disabled")
    assert (wish.kind, wish.name, wish.value) == ("task name", TASK, 1)
    act(made, "/admin/queues/desiredstate/", "enable", [wish.pk], confirmed="yes", why="")
    wish.refresh_from_db()
    assert wish.value == 0
