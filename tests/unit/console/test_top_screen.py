"""The screen of `queues top`: what fits, what is shown first, and what is kept from the terminal."""

import itertools
import time
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from rich.cells import cell_len

from ami.console.top import keys, once, screen
from ami.console.top.cells import ASCII, UNICODE, bar, glyphs_for
from ami.console.top.feed import Feed, Figures
from ami.console.top.session import FINDINGS, HELP, LETTERS, QUEUES, WORKERS, Session
from ami.queues.letters.found import Group
from ami.queues.wishes import LONGEST_WHY
from ami.telemetry.snapshots.shape import FindingFigures, JobFigures, Snapshot
from tests.support.console import MIB, snapshot, worker

NOW = datetime(2026, 6, 1, tzinfo=UTC)
GROUPS = tuple(
    Group(
        f"{number:040x}", "ami.jobs.tasks.run_job", "ValueError", "jobs.py:7", f"no {number}", 40 - number, 1, NOW, NOW
    )
    for number in range(30)
)


def session_of(found: Snapshot | None, **values) -> Session:
    feed = Feed(lambda: None)
    feed.figures = Figures(snapshot=found, read_at=time.monotonic(), **values)
    return Session(feed, lambda: None)


def shown(session: Session, width: int = 80, height: int = 24, glyphs=UNICODE) -> list[str]:
    return [line.plain for line in screen.lines(session, width, height, glyphs)]


@pytest.mark.parametrize("page", [QUEUES, WORKERS, LETTERS, FINDINGS, HELP])
def test_every_page_fills_any_terminal_and_no_more(page: str):
    many = snapshot(jobs=(JobFigures(5, "Night", "ml", "Panama", "STARTED", "process", 0.25),) * 9)
    session = session_of(many, letters=GROUPS)
    session.page = page
    for width, height in itertools.product([20, 40, 80, 140], [1, 4, 12, 24, 60]):
        lines = shown(session, width, height)
        assert len(lines) == height
        assert max(map(cell_len, lines)) <= width


def test_narrow_terminal_shows_queues_pauses_findings_workers_and_jobs():
    lines = "\n".join(shown(session_of(snapshot())))
    for queue in snapshot().queues:
        assert queue.queue in lines
    for text in (
        "200,000",
        "40ms / ",
        "12/12/0",
        "broken: p95 wait 9 min",
        "paused by user 1 anna 5m ago",
        "Workers: 2 running; fullest memory 44%",
        "#5 Night of June (Panama)",
        "██░░░░░░░░  25%",
        "3.5/s",
        "10m left",
        "2 failed",
    ):
        assert text in lines, text


def test_wide_terminal_says_each_promise_in_the_row():
    (row,) = (line for line in shown(session_of(snapshot()), 140) if "antenna-ingest " in line and "▸" in line)
    assert row.rstrip().endswith("broken: p95 wait 9 min")


def test_little_room_keeps_the_selected_queue_and_the_broken_promise():
    session = session_of(snapshot(findings=(FindingFigures("error", "x", "first"),) * 9))
    session.press(keys.END)
    lines = shown(session, height=14)
    assert any(line.startswith("▸ antenna ") for line in lines)
    assert any("paused by user 1 anna" in line for line in lines)
    assert "9 findings: f" in lines


def test_names_cannot_send_escape_sequences_to_the_terminal():
    evil = "\x1b]0;owned\x07\x1b[2J\u202e"
    job = JobFigures(1, evil, evil, evil, evil, evil, 0.5)
    found = snapshot(
        jobs=(job,),
        findings=(FindingFigures("error", evil, evil),),
        workers=(replace(worker("antenna", "celeryworker"), node=evil, why=evil),),
        unseen=(evil,),
    )
    session = session_of(found, faults=(evil,), letters=(replace(GROUPS[0], task=evil, message=evil),))
    for page in (QUEUES, WORKERS, LETTERS, FINDINGS):
        session.page = page
        assert all(each.isprintable() for each in "".join(shown(session, 140, 40))), page


def test_terminal_without_unicode_gets_ascii():
    assert glyphs_for("utf-8") is UNICODE
    assert glyphs_for("latin-1") is ASCII
    assert glyphs_for(None) is ASCII
    assert all("".join(shown(session_of(snapshot()), width, glyphs=ASCII)).isascii() for width in (80, 140))


def test_gauge_marks_where_the_worker_holds():
    assert bar(0.5, 10, ASCII, (0.85,)) == "#####...|."
    session = session_of(snapshot(workers=(worker("antenna", "w", memory_used_bytes=1024 * MIB),)))
    session.press("w")
    assert any("███████░░░░┃░░ 50% 2.0GiB" in line for line in shown(session))


def test_first_line_keeps_the_age_of_the_figures_beside_a_long_verdict():
    for errors in range(1, 120, 7):
        found = snapshot(findings=(FindingFigures("error", "x", "first"),) * errors, workers=())
        assert shown(session_of(found))[0].endswith(" old"), errors


def test_silent_database_is_said_with_the_age_of_the_figures():
    session = session_of(snapshot(), asked_at=time.monotonic() - 9)
    assert "does not answer for 9 s" in shown(session)[0]
    assert (
        "The database does not answer: no" in shown(session_of(None, faults=("The database does not answer: no",)))[0]
    )


def test_pause_of_a_paused_queue_and_resume_of_another_are_not_asked_for():
    session = session_of(snapshot())
    session.press("r")
    assert "is not paused" in session.message
    session.press("j")
    session.press("p")
    assert "is paused already" in session.message
    assert session.prompt is None


def test_reason_is_bounded_and_edited_and_anything_but_y_changes_nothing():
    session = session_of(snapshot())
    for key in ("p", *"q" * (LONGEST_WHY + 5), keys.ERASE, keys.UP):
        session.press(key)
    assert session.prompt
    assert session.prompt.why == "q" * (LONGEST_WHY - 1)
    assert shown(session)[-1].endswith("q_")
    session.press(keys.ENTER)
    session.press(keys.ENTER)
    assert session.prompt is None
    assert session.message == "Nothing was changed."


def test_selected_cause_stays_in_sight():
    session = session_of(snapshot(), letters=GROUPS, letters_of="antenna-ingest")
    session.press("l")
    session.press(keys.END)
    lines = shown(session, height=12)
    assert any("no 29" in line and line.startswith("▸") for line in lines)
    assert lines[2].split()[0] == "Letters"
    session.press("r")
    assert session.prompt
    assert session.prompt.lever.name == "replay 11 letters of run_job"


def test_json_has_the_tables_of_the_page():
    found = once.tables(snapshot())
    assert set(found) == {"at", "verdict", "unseen", "delayed", "queues", "findings", "jobs", "tasks", "workers"}
    assert found["queues"][1]["paused_by"] == "user 1 anna"
    assert found["queues"][1]["paused_until"] == "2026-06-01T23:00:00+00:00"
