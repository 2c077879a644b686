"""What the overview and a queue's page say of a snapshot."""

import csv
import io
import re
from dataclasses import replace

import pytest
from django.conf import settings
from django.urls import reverse

from ami.console.top import faults
from ami.telemetry import series
from ami.telemetry.series import Mark, Series
from ami.telemetry.snapshots.shape import FindingFigures, JobFigures, Snapshot, Stop
from tests.support import console

pytestmark = pytest.mark.django_db
ROWS = settings.ANTENNA_TOPOLOGY.workloads
QUEUE = ROWS[0].queue


def overview(client, **query) -> str:
    answer = client.get(reverse("console:overview"), query)
    assert answer.status_code == 200
    return answer.content.decode()


def test_promises_are_told_in_words(figures, viewer):
    shown = overview(viewer)
    assert f"1 of {len(ROWS)} promises broken" in shown
    assert "Promise broken" in shown
    assert "p95 wait 9 min" in shown
    assert "Promise kept" in shown


def test_pause_names_who_why_and_until(figures, viewer):
    shown = overview(viewer)
    assert "Paused by user 1 anna" in shown
    assert "maintenance &lt;b&gt;tonight&lt;/b&gt;" in shown
    assert f'<time datetime="{console.iso(console.AT + 3600)}"' in shown


def test_workers_that_take_nothing_say_why(figures, viewer, monkeypatch):
    one, other = figures.workers
    parked = replace(one, state="running", parked=Stop("ada", "its <fan>", console.AT - 60, what="parked"))
    held = replace(other, state="held", why="RAM at 91%")
    more = tuple(replace(other, node=f"w{number}", state="dead", why="its process is gone") for number in range(3))
    console.show(monkeypatch, replace(figures, workers=(parked, held, *more)))
    shown = " ".join(re.sub("<[^>]*>", " ", viewer.get(reverse("console:overview")).content.decode()).split())
    assert f"{one.node} parked by ada 1 min ago: its &lt;fan&gt; (it has not confirmed yet)" in shown
    assert f"{other.node} held: RAM at 91%" in shown
    assert "w1 dead: its process is gone and 1 more" in shown


def test_next_tick_and_delayed_messages_are_shown(figures, viewer, monkeypatch):
    page = viewer.get(reverse("console:overview")).content.decode()
    assert f'Next tick</dt><dd><time datetime="{console.iso(console.AT + 40)}"' in page
    queues = tuple(replace(queue, delayed=None) for queue in figures.queues)
    late = replace(figures.beats[0], next_tick_at=console.AT - 30)
    console.show(monkeypatch, replace(figures, queues=queues, delayed=12, beats=(late,)))
    page = viewer.get(reverse("console:overview")).content.decode()
    assert 'Delayed <span class="quiet">all queues together</span></dt><dd>12</dd>' in page
    assert "Next tick</dt><dd>due <time" in page
    assert "of all queues together" in viewer.get(reverse("console:queue", args=[QUEUE])).content.decode()


def test_finding_has_its_sentence_runbook_and_lever(figures, operator):
    shown = overview(operator)
    assert "has no consumer; start it." in shown
    assert f"{reverse('console:handbook')}#no-consumer" in shown
    assert reverse("console:lever", args=["resume", ROWS[1].queue]) in shown


def test_job_links_to_its_page_with_its_progress(figures):
    shown = overview(console.client_of("view_job"))
    assert reverse("admin:jobs_job_change", args=[5]) in shown
    assert 'process</span> <strong class="figure">25%' in shown
    assert "2 images failed" in shown


def test_empty_deployment_says_what_to_do(db, monkeypatch, nothing_rendered):
    console.show(monkeypatch, Snapshot(console.AT, 1, (), (), (), ()))
    shown = overview(console.client_of("view_job"))
    for sentence in ("No figures yet", "queues check --live", "No beat runs", "No job runs"):
        assert sentence in shown


def test_what_could_not_be_seen_is_said(figures, viewer, monkeypatch):
    unread = tuple(replace(each, waiting=None, consumers=None, dead_letters=None) for each in figures.queues)
    console.show(monkeypatch, replace(figures, queues=unread, unseen=("The broker does not answer; start it.",)))
    assert overview(viewer).count("The broker does not answer; start it.") == 1
    assert viewer.get(reverse("console:queue", args=[QUEUE])).status_code == 200


@pytest.mark.parametrize("name", ["broker-unreachable", "storage"])
def test_broker_that_is_away_is_said_once(figures, viewer, monkeypatch, name: str):
    found = FindingFigures("error", name, "It does not answer; start it.")
    away = replace(figures, findings=(found,), unseen=("It does not answer, as another process says.",))
    console.show(monkeypatch, away)
    assert overview(viewer).count("It does not answer") == 1
    assert faults.away(away) == away.unseen


def test_hostile_names_neither_break_nor_run(figures, operator, monkeypatch):
    hostile = "<script>alert(1)</script>/../\"'"
    tasks = (replace(console.task(), id=hostile, task=hostile), replace(console.task(), id="", task=""))
    found = replace(
        figures,
        workers=(console.worker(QUEUE, "x", node=hostile, running=tasks, why=hostile),),
        findings=(FindingFigures("error", hostile, hostile, hostile), FindingFigures("?", "paused", "s", "a/b")),
        jobs=(JobFigures(1, hostile, hostile, hostile, hostile, hostile, 0.5),),
    )
    console.show(monkeypatch, found)
    assert "<script>alert" not in overview(operator)
    answer = operator.get(reverse("console:queue", args=[QUEUE]))
    assert answer.status_code == 200
    assert b"<script>alert" not in answer.content


def test_table_is_sent_as_csv_without_formulas(figures, viewer, monkeypatch):
    finding = FindingFigures("error", "x", "=HYPERLINK(1)", "a")
    console.show(monkeypatch, replace(figures, findings=(finding,)))
    answer = viewer.get(reverse("console:overview"), {"format": "csv", "table": "findings"})
    assert answer["Content-Type"].startswith("text/csv")
    assert 'filename="findings.csv"' in answer["Content-Disposition"]
    [row] = csv.DictReader(io.StringIO(answer.content.decode()))
    assert row["sentence"] == "'=HYPERLINK(1)"


def test_table_is_sent_as_json_with_raw_values(figures, viewer):
    found = viewer.get(reverse("console:overview"), {"format": "json"}).json()
    row = found["queues"][0]
    assert (row["queue"], row["waiting"], row["wait_p95"], row["workers"]) == (
        QUEUE,
        200_000,
        0.04,
        [f"{ROWS[0].service}@host"],
    )
    assert found["queues"][1]["paused_until"] == console.iso(console.AT + 3600)


@pytest.mark.parametrize("query", [{"format": "xml"}, {"format": "csv", "table": "nothing"}])
def test_unknown_format_or_table_is_400(figures, viewer, query):
    answer = viewer.get(reverse("console:overview"), query)
    assert answer.status_code == 400
    assert b"queues" in answer.content


def test_queue_page_shows_its_tasks_and_workers(figures, viewer):
    shown = viewer.get(reverse("console:queue", args=[QUEUE])).content.decode()
    assert "ami.jobs.tasks.run_job" in shown
    assert "3 of 9" in shown
    assert f"{ROWS[0].service}@host" in shown
    assert viewer.get(reverse("console:queue", args=[ROWS[2].queue])).content.decode().count("run_job") == 0


def test_series_have_columns_target_and_marks(figures, viewer, monkeypatch):
    asked = []

    def points(queue, span):
        asked.append((queue, span))
        return Series([1.0, 2.0], {"waiting": [3.0, None]})

    monkeypatch.setattr(series, "queue_series", points)
    monkeypatch.setattr(series, "marks", lambda *_: [Mark(1.5, "paused", "by anna")])
    found = viewer.get(reverse("console:series", args=[QUEUE]), {"span": "7d"}).json()
    assert asked == [(QUEUE, 604800.0)]
    assert found["columns"] == {"waiting": [3.0, None]}
    assert found["target"] == ROWS[0].wait_target_seconds
    assert found["marks"] == [{"at": 1.5, "kind": "paused", "text": "by anna"}]
    answer = viewer.get(reverse("console:queue", args=[QUEUE]), {"format": "csv", "table": "series"})
    assert answer.content.decode().splitlines() == [
        "at,waiting",
        "1970-01-01T00:00:01+00:00,3.0",
        "1970-01-01T00:00:02+00:00,",
    ]


def test_pages_say_starting_and_not_what_to_start(figures, operator, monkeypatch):
    queues = tuple(console.queue(row, workers=()) for row in ROWS)
    for is_starting in (True, False):
        gone = replace(figures, queues=queues, workers=(), beats=(), findings=(), is_starting=is_starting)
        console.show(monkeypatch, gone)
        for address in ("", "workers/", f"queue/{QUEUE}/"):
            shown = operator.get(f"/admin/queues/{address}").content.decode()
            assert ("tarting" in shown) is is_starting, address
            assert ("python -m ami.topology" in shown) is not is_starting, address


def test_first_line_is_the_verdict_and_never_green_while_nothing_runs(figures, viewer, monkeypatch):
    kept = tuple(console.queue(row) for row in ROWS)
    for workers, level, words in (
        (figures.workers, "ok", "All is well"),
        ((), "error", f"Nothing runs: 0 of {len(ROWS)} workers"),
    ):
        console.show(monkeypatch, replace(figures, queues=kept, workers=workers, findings=()))
        assert re.search(rf'class="verdict is-{level}">.*{words}</p>', overview(viewer))
