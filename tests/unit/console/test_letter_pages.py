"""The console's pages of dead letters: filters, groups, one letter, replays; each with its permission."""

import io
import time
from collections.abc import Iterator
from typing import Any

import pytest
from celery import current_app
from django.core.management import call_command

from ami.celery.failures.record import Failure
from ami.queues import failures
from ami.queues.letters import causes
from ami.queues.models import AuditEntry, Letter, Replay
from tests.support.brokers import celery_at
from tests.support.console_pages import buttons, client, few_statements, many_letters, text
from tests.support.dead_letters import QUEUE, TASK, letter

pytestmark = [pytest.mark.django_db, pytest.mark.sqlite]
LETTERS = "/admin/queues/letters/"
SECRET = '[["canary-1234"], {}, {}]'


@pytest.fixture(autouse=True)
def broker(settings: Any) -> Iterator[None]:
    settings.ANTENNA_COLLECT_LETTERS = True
    with celery_at("objectstore+memory://console-letters"):
        current_app.declare_everything()
        yield


def states() -> list[str]:
    return list(Letter.objects.order_by("pk").values_list("state", flat=True))


def test_groups_show_causes_with_bars_over_time():
    for number in range(3):
        letter(number)
    page = text(client().get(LETTERS))
    assert TASK in page
    assert "3 in 24 hours, at most 3 in one" in page
    assert "<time datetime=" in page


def test_letters_are_filtered_by_the_address():
    letter(1)
    letter(2, task="other.task")
    made = client()
    assert "other.task" not in made.get(f"{LETTERS}all/?format=json&task={TASK}").content.decode()
    assert len(made.get(f"{LETTERS}all/?format=json&text=id-2").json()["letters"]) == 1
    assert len(made.get(f"{LETTERS}all/?format=json&queue={QUEUE}&state=any").json()["letters"]) == 2
    assert made.get(f"{LETTERS}all/?format=json&state=done").json()["letters"] == []
    assert made.get(f"{LETTERS}?state=buried").status_code == 400
    assert made.get(f"{LETTERS}?text=%00").status_code == 400
    assert made.get(f"{LETTERS}?format=xml").status_code == 400


def test_letter_shows_trail_and_no_message():
    row = letter(1, SECRET)
    page = text(client().get(f"{LETTERS}{row.pk}/"))
    assert "No failure of it is on record" in page
    assert "canary" not in page
    assert f"/admin/queues/task/{row.task_id}/" in page


def test_viewer_has_no_levers_and_a_post_is_403():
    row = letter(1)
    made = client()
    for address in (LETTERS, f"{LETTERS}all/", f"{LETTERS}{row.pk}/", f"{LETTERS}cause/{row.cause}/"):
        assert buttons(text(made.get(address))) == []
    for address in (f"{LETTERS}all/", f"{LETTERS}{row.pk}/", f"{LETTERS}cause/{row.cause}/"):
        for verb in ("replay", "discard"):
            assert made.post(address, {"verb": verb, "ids": [row.pk]}).status_code == 403
    assert made.get(f"{LETTERS}{row.pk}/edit/").status_code == 403
    assert made.post("/admin/queues/lever/stop-replay/1/").status_code == 403
    assert states() == ["dead"]


def test_group_is_replayed_and_recorded_with_its_reason():
    rows = [letter(number) for number in range(3)]
    made = client("replay_letter")
    address = f"{LETTERS}cause/{rows[0].cause}/"
    assert "Replay" in text(made.get(address))
    answer = made.post(address, {"verb": "replay", "why": "fixed", "to": "", "rate": ""})
    assert (answer.status_code, answer["Location"]) == (303, address)
    assert states() == ["replayed"] * 3
    assert AuditEntry.objects.get(verb="replay").why == "fixed"


def test_chosen_letters_are_discarded_and_no_other():
    rows = [letter(number) for number in range(3)]
    made = client("discard_letter")
    made.post(f"{LETTERS}all/", {"verb": "discard", "why": "not needed", "ids": [rows[0].pk, rows[2].pk]})
    assert states() == ["discarded", "dead", "discarded"]
    made.post(f"{LETTERS}all/", {"verb": "discard", "why": "nothing chosen"})
    refused = made.post(f"{LETTERS}all/", {"verb": "discard", "why": " ", "ids": [rows[1].pk]}, follow=True)
    assert "Give a reason" in text(refused)
    assert states() == ["discarded", "dead", "discarded"]


def test_replay_at_a_rate_shows_progress_and_is_stopped():
    rows = [letter(number) for number in range(3)]
    made = client("replay_letter")
    made.post(f"{LETTERS}cause/{rows[0].cause}/", {"verb": "replay", "why": "slowly", "to": "", "rate": "0.5"})
    slow = Replay.objects.get(why="slowly")
    assert "0 of 3 at 0.5 a second" in text(made.get(LETTERS))
    made.post(f"/admin/queues/lever/stop-replay/{slow.pk}/", {"why": "enough"})
    assert Replay.objects.get().state == "stopped"
    made.post(f"/admin/queues/lever/resume-replay/{slow.pk}/", {"why": "go on"})
    assert Replay.objects.get().state == "running"
    part = text(made.get("/admin/queues/replays/?live=table"))
    assert "<progress" in part
    assert f'href="/admin/queues/lever/stop-replay/{slow.pk}/?next=%2Fadmin%2Fqueues%2Freplays%2F"' in part
    assert "<html" not in part
    polled = made.get("/admin/queues/replays/?live=table")
    again = made.get("/admin/queues/replays/?live=table", headers={"If-None-Match": polled["ETag"]})
    assert (again.status_code, again.content) == (304, b"")


def test_wrong_rate_is_said_and_nothing_is_replayed():
    row = letter(1)
    made = client("replay_letter")
    answer = made.post(f"{LETTERS}{row.pk}/", {"verb": "replay", "rate": "fast", "to": ""}, follow=True)
    assert "is not a number" in text(answer)
    assert states() == ["dead"]


def test_edited_letter_is_replayed_and_each_look_is_audited():
    row = letter(1, SECRET)
    made = client("edit_letter", "read_letter_body", "replay_letter")
    address = f"{LETTERS}{row.pk}/edit/"
    assert "canary-1234" in text(made.get(address))
    assert AuditEntry.objects.filter(verb="read letter").count() == 1
    refused = text(made.post(address, {"args": "[1", "kwargs": "{}", "why": "new"}))
    assert "are not JSON" in refused
    assert "[1</textarea>" in refused
    made.post(address, {"args": "[]", "kwargs": "{}", "why": "it had no job"})
    assert states() == ["replayed"]
    assert "it had no job" in text(made.get(f"{LETTERS}{row.pk}/"))


def test_page_of_ten_thousand_letters_takes_few_statements():
    many_letters(10_000)
    key = Letter.objects.latest("pk").pk
    made = client("replay_letter", "discard_letter")
    for address in (LETTERS, f"{LETTERS}all/?page=100", f"{LETTERS}cause/{3:040x}/", f"{LETTERS}{key}/"):
        with few_statements():
            text(made.get(address))


def test_csv_runs_no_formula_of_a_spreadsheet():
    letter(1, task="=cmd()")
    answer = client().get(f"{LETTERS}all/?format=csv")
    assert answer["Content-Type"] == "text/csv; charset=utf-8"
    assert "'=cmd()" in answer.content.decode()


def test_letter_that_was_set_aside_has_no_cause_and_is_shown():
    row = letter(1)
    Letter.objects.update(state=Letter.State.SET_ASIDE, cause="", task_id="odd/id 1")
    made = client()
    assert "without a cause on record" in text(made.get(f"{LETTERS}?state=set+aside"))
    for address in (f"{LETTERS}all/?state=set+aside", f"{LETTERS}{row.pk}/"):
        assert 'href="/admin/queues/task/odd/id%201/"' in text(made.get(address))
    assert "set aside since" in text(made.get("/admin/queues/task/odd/id%201/"))


def test_empty_list_says_what_it_means():
    page = text(client().get(LETTERS))
    assert "No dead letters: every task that ran ended well" in page
    assert "No letter fits this filter" in text(client().get(f"{LETTERS}?task=none"))
    assert client().get(f"{LETTERS}cause/none/").status_code == 404


def failed(row: Letter, message: str, exception: str = "ValueError", retries: int = 0) -> None:
    failure = Failure(
        row.task_id,
        retries,
        0,
        row.task,
        "error",
        exception,
        message,
        "a.py:1 in run",
        "",
        "w@a",
        "a",
        1,
        time.time() + retries,
        1.0,
        0,
    )
    failures.record([failure])
    causes.bind({row.task_id})


def test_letter_shows_its_own_message_and_its_group_the_cause():
    rows = [letter(number) for number in range(2)]
    failed(rows[0], "other trouble", exception="KeyError")  # An earlier try, of another cause.
    for row in rows:
        failed(row, f"No capture {row.pk + 7000} <b>here</b>", retries=1)
    shown = f"ValueError: No capture {rows[0].pk + 7000} &lt;b&gt;here&lt;/b&gt;"
    made, cause = client(), Letter.objects.get(pk=rows[0].pk).cause
    assert shown in text(made.get(f"{LETTERS}{rows[0].pk}/"))
    for listed in (f"{LETTERS}all/", f"{LETTERS}cause/{cause}/", "/admin/queues/letter/"):
        page = text(made.get(listed))
        assert all(f"No capture {row.pk + 7000}" in page for row in rows)
    groups = text(made.get(LETTERS))
    assert "No capture &lt;n&gt;" in groups
    assert shown not in groups
    out = io.StringIO()
    call_command("queues", "letters", "list", stdout=out)
    assert f"No capture {rows[1].pk + 7000}" in out.getvalue()
