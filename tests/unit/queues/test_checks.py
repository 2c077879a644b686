"""What `manage.py check` says about tasks, queues and the schedule."""

from dataclasses import replace
from typing import Any

import pytest
from celery.exceptions import CDeprecationWarning

from ami.queues import checks
from ami.queues.schedule import Scheduled
from ami.topology.table import HOUSEKEEPING, INGEST, INTERACTIVE
from ami.topology.topology import Topology
from tests.support.place import celery_at


def said(check: Any, code: str) -> list[str]:
    """The sentences that a check says under one code."""
    return [message.msg for message in check() if message.id == code]


def with_tasks(topology: Topology, **more: str) -> Topology:
    """The topology with one more rule in the rows of these keys."""
    rows = (replace(row, tasks=(*row.tasks, more[row.key])) if row.key in more else row for row in topology.workloads)
    return Topology(tuple(rows))


def test_the_product_itself_is_clean():
    about_us = [message for message in checks.check_tasks() if message.msg.startswith("ami.")]
    assert about_us + checks.check_rules() + checks.check_schedule() == []


def test_unrouted_task_is_named(make_task: Any, settings: Any):
    make_task("tests.unknown.routed_it")
    (sentence,) = [line for line in said(checks.check_tasks, "queues.W002") if "unknown" in line]
    assert sentence == "tests.unknown.routed_it is routed by no rule and runs on 'antenna'."
    settings.ANTENNA_FALLBACK_TASKS = ("tests.unknown.routed_it",)
    assert not any("unknown" in line for line in said(checks.check_tasks, "queues.W002"))


def test_task_that_two_globs_claim_is_refused_with_both_named(make_task: Any, settings: Any):
    settings.ANTENNA_TOPOLOGY = with_tasks(settings.ANTENNA_TOPOLOGY, INGEST="tests.twice.*", HOUSEKEEPING="*.twice.it")
    make_task("tests.twice.it")
    (sentence,) = said(checks.check_tasks, "queues.E001")
    assert "tests.twice.it is claimed by two globs" in sentence
    assert f"'tests.twice.*' ({INGEST})" in sentence
    assert f"'*.twice.it' ({HOUSEKEEPING})" in sentence


def test_task_with_an_unknown_queue_of_its_own_is_refused_with_the_nearest_name(make_task: Any):
    with pytest.warns(CDeprecationWarning, match="'queue' task attribute"):
        make_task("ami.jobs.tasks.audit_misrouted", queue="antena-ingest")
    assert said(checks.check_tasks, "queues.E003") == [
        "ami.jobs.tasks.audit_misrouted is routed to 'antena-ingest', which no workload consumes. "
        "Did you mean 'antenna-ingest'?"
    ]


@pytest.mark.parametrize(
    ("options", "code", "fact"),
    [
        ({"time_limit": 60, "soft_time_limit": 60}, "queues.E007", "of 60 s, not above its soft one of 60 s"),
        ({"time_limit": 60, "soft_time_limit": 90}, "queues.E007", "of 60 s, not above its soft one of 90 s"),
        ({"soft_time_limit": 1700}, "queues.E004", "has a hard time limit of 2125 s"),
        ({"time_limit": 1741, "soft_time_limit": 60}, "queues.E004", "RabbitMQ takes a message back after 1800 s"),
    ],
)
def test_time_limit_that_cannot_work_is_refused(make_task: Any, options: Any, code: str, fact: str):
    make_task("ami.jobs.tasks.audit_limited", **options)
    (sentence,) = said(checks.check_tasks, code)
    assert sentence.startswith("ami.jobs.tasks.audit_limited has a hard time limit")
    assert fact in sentence


@pytest.mark.parametrize("options", [{"time_limit": 1740, "soft_time_limit": 60}, {"time_limit": 2}])
def test_time_limits_that_can_work_are_not_mentioned(make_task: Any, options: Any):
    make_task("ami.jobs.tasks.audit_limited", **options)
    assert not [message for message in checks.check_tasks() if "audit_limited" in message.msg]


def test_exact_name_in_the_table_that_no_task_has_is_named(settings: Any):
    settings.ANTENNA_TOPOLOGY = with_tasks(settings.ANTENNA_TOPOLOGY, INTERACTIVE="ami.jobs.tasks.run_jobs")
    assert said(checks.check_rules, "queues.W005") == [
        f"{INTERACTIVE} names the task 'ami.jobs.tasks.run_jobs', which is not registered. "
        "Did you mean 'ami.jobs.tasks.run_job'?"
    ]


def test_schedule_that_names_an_unknown_task_is_refused(monkeypatch: pytest.MonkeyPatch):
    wrong = Scheduled(task="ami.jobs.tasks.audit_jobz", every_seconds=60, expires_seconds=50)
    monkeypatch.setattr(checks, "declared", lambda: iter([wrong]))
    assert said(checks.check_schedule, "queues.E006") == [
        "The schedule names the task 'ami.jobs.tasks.audit_jobz', which is not registered. "
        "Did you mean 'ami.jobs.tasks.audit_jobs'?"
    ]


@pytest.mark.parametrize(("url", "warned"), [("memory://localhost", True), ("objectstore+memory://checks", False)])
def test_declared_priority_is_named_where_the_broker_has_none(make_task: Any, url: str, warned: bool):
    with celery_at(url):
        assert checks.check_priorities() == [], "no task declares one"
        _make_urgent_task(make_task)
        found = said(checks.check_priorities, "queues.W008")
    sentence = "tests.urgent declares the priority 9, and memory as a broker has no priorities here."
    assert found == ([sentence] if warned else [])


def test_declared_priority_is_not_judged_without_the_broker(make_task: Any):
    _make_urgent_task(make_task)
    with celery_at("amqp://nobody:nothing@127.0.0.1:1//"):
        assert checks.check_priorities() == []


def _make_urgent_task(make_task: Any) -> None:
    with pytest.warns(CDeprecationWarning, match="'priority' task attribute"):
        make_task("tests.urgent", priority=9)
