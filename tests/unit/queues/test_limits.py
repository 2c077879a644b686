"""Permits that an operator changes: persisted, audited, and used by the next pick."""

import io
import json
from typing import Any
from uuid import UUID

import pytest
from celery import current_app
from django.core.management import CommandError, call_command
from django.db import connection
from django.test.utils import CaptureQueriesContext

from ami.admission import keys, leases, picks
from ami.admission.models import Call, Run
from ami.admission.policies import Policy
from ami.queues import admission_facts, limits
from ami.queues.models import AuditEntry
from ami.queues.refusals import Refused
from ami.queues.wishes import Operator
from tests.support.admission import QUEUE
from tests.support.worker_tasks import admitted

pytestmark = [pytest.mark.django_db, pytest.mark.sqlite]
NAME, ADA = admitted.limited.name, Operator("ada")


@pytest.fixture(autouse=True)
def _no_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ami.queues.wishes.wake_workers", lambda: None)


def picked() -> int:
    """Pick as the dispatcher does; return how many runs there are then."""
    deployment = admission_facts.read()
    policies = {name: deployment.limited(name, each) for name, each in picks.staged_tasks(current_app).items()}
    leases.acquire([QUEUE], "me")
    picks.pick(policies, QUEUE, "me", 99)
    return Run.objects.count()


def command(*argv: Any) -> list[dict[str, Any]]:
    out = io.StringIO()
    call_command("queues", *argv, "--json", stdout=out)
    found: list[dict[str, Any]] = json.loads(out.getvalue())
    return found


def test_limit_is_raised_lowered_and_given_back():
    for number in range(12):
        admitted.limited.delay(key="a", number=number)
    assert picked() == 2
    assert limits.limit(NAME, 5, ADA, why="a larger machine").most == 5
    assert picked() == 5
    limits.limit(NAME, 3, ADA)
    first = Run.objects.get(permit_number=1)
    Call.objects.filter(run=first.pk).delete()
    first.delete()
    assert picked() == 4, "a free number is not used while more runs are active than are allowed"
    Run.objects.filter(permit_number__in=[2, 3]).delete()
    Call.objects.exclude(run=None).exclude(run__in=Run.objects.values("pk")).delete()
    assert picked() == 3
    assert limits.unlimit(NAME, ADA).most == 2
    entries = AuditEntry.objects.order_by("pk").values_list("verb", "target", "why", "who")
    assert list(entries)[0] == ("limit", f"permits {NAME}", "a larger machine", "ada")
    assert [verb for verb, *_ in entries] == ["limit", "limit", "unlimit"]


def test_what_is_no_limit_is_refused_with_what_is_known():
    with pytest.raises(Refused, match=r"No task declares permits .*limitd.* Did you mean .*limited"):
        limits.limit(NAME.replace("limited", "limitd"), 3, ADA)
    with pytest.raises(Refused, match="Known: .*run_export"):
        limits.limit(admitted.once.name, 3, ADA)
    for wrong in (0, -1, limits.LARGEST + 1):
        with pytest.raises(Refused, match="is not a number of runs"):
            limits.limit(NAME, wrong, ADA)
    with pytest.raises(CommandError):
        command("limit", "no.such.task", "3")
    assert not AuditEntry.objects.exists()


def test_command_lists_and_changes_limits():
    before = {row["name"]: row for row in command("limits")}
    assert before["ami.exports.tasks.run_export"] == {
        "name": "ami.exports.tasks.run_export",
        "tasks": ["ami.exports.tasks.run_export"],
        "per": "project_id",
        "declared": 2,
        "most": 2,
        "by": "",
        "why": "",
        "kind": "permits",
        "per_seconds": None,
    }
    [changed] = command("limit", "ami.exports.tasks.run_export", "1", "--why", "slow disks")
    assert (changed["most"], changed["declared"], changed["why"]) == (1, 2, "slow disks")
    assert changed["by"].startswith("command:")
    assert {row["name"]: row["most"] for row in command("limits")}["ami.exports.tasks.run_export"] == 1
    [back] = command("unlimit", "ami.exports.tasks.run_export")
    assert (back["most"], back["by"]) == (2, "")


def test_reason_of_a_waiting_call_has_the_limit_of_now():
    limits.limit(NAME, 1, ADA)
    for number in range(2):
        admitted.limited.delay(key="a", number=number)
    picked()
    [row] = [each for each in command("staged") if each["task"] == NAME]
    assert row["why"] == "for a permit: 1 of 1 are held"


def test_dispatcher_reads_limits_without_a_statement_more():
    limits.limit(NAME, 3, ADA)
    with CaptureQueriesContext(connection) as seen:
        assert admission_facts.read().limits == {NAME: 3}
    assert len(seen) == 2


def test_rate_is_changed_and_given_back():
    paced = admitted.paced.name
    assert limits.limit(paced, 40, ADA).kind == "rate"
    deployment = admission_facts.read()
    policy = deployment.limited(paced, picks.staged_tasks(current_app)[paced])
    assert policy.rate is not None
    assert (policy.rate.most, policy.rate.per_seconds) == (40, 2)
    with pytest.raises(Refused, match="No task declares a rate of the name"):
        limits.limit(NAME, 3, ADA, is_rate=True)
    assert limits.unlimit(paced, ADA, is_rate=True).most == 20
    assert {row["kind"] for row in command("limits")} == {"permits", "rate"}


def test_weight_of_a_key_is_kept_and_given_back():
    assert command("weights") == []
    [found] = command("weigh", "project_id=7", "3", "--why", "paid for it")
    assert (found["key"], found["weight"], found["why"]) == ("project_id=7", 3, "paid for it")
    limits.weigh("owner=a name", 2, ADA)
    assert admission_facts.read().weights == {"project_id=7": 3, 'owner="a name"': 2}
    limits.weigh("project_id=7", 1, ADA)
    assert [row["key"] for row in command("weights")] == ['owner="a name"']
    with pytest.raises(Refused, match="is not a weight"):
        limits.weigh("project_id=7", 1001, ADA)
    for wrong in ("7", "=7", "a name", "a b=7"):
        with pytest.raises(Refused, match="names no argument; give .* project_id=7"):
            limits.weigh(wrong, 2, ADA)


def test_weight_is_given_by_the_key_that_is_shown():
    for value in (7, "a=b", None, "x" * 300, [1, {"b": 2}], UUID(int=7), "\u00e4"):
        shown = keys.fair_key(admitted.fair, Policy(fair_by="key"), {"key": value})
        assert limits.weigh(shown, 2, ADA).key == shown
