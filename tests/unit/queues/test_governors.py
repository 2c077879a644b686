"""The workers' governors: the table, the JSON, and the findings of the live check."""

import io
import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from ami.governor.governor import Governor
from ami.governor.pool_adapters import PoolAdapter
from ami.governor.probes.machine import Machine
from ami.governor.sample import Sample
from ami.governor.settings import GovernorSettings
from ami.queues import diagnostics, governors
from ami.queues.queue import QueueState
from ami.topology.topology import Topology
from tests.support.place import celery_at

MIB = 1024**2
FULL = Sample(
    memory_used_bytes=945 * MIB, memory_limit_bytes=1024 * MIB, scope="container", swap_percent=12.5, gpu_percent=None
)
ROOM = replace(FULL, memory_used_bytes=332 * MIB)
REASON = "RAM at 92.3% (throttle at 90%, container)"


class Solo:
    """A pool of one place."""

    limit = 1


class Scripted(Machine):
    """A machine with a given sample."""

    def __init__(self, sample: Sample) -> None:
        self.sample = sample

    def read(self) -> Sample:
        return self.sample


def info_of(sample: Sample = ROOM, mode: str = "on", **changes: Any) -> dict[str, Any]:
    """Return a governor's ``info`` after a check of such a machine, as it arrives: through JSON."""
    settings = GovernorSettings(memory_governor=mode)
    pool = PoolAdapter(Solo(), settings, 1, lambda *_: None)
    governor = Governor(settings, pool, None, machine=Scripted(sample))
    governor.check()
    return json.loads(json.dumps(governor.info())) | changes


@pytest.fixture
def topology(settings: Any) -> Topology:
    return settings.ANTENNA_TOPOLOGY


def answer(topology: Topology, queue: str, governor: dict[str, Any] | None = None) -> dict[str, Any]:
    known = {"fingerprint": topology.fingerprint, "routing": topology.routing, "queues": [queue], "own_queues": [queue]}
    return {"topology": known} | ({} if governor is None else {"governor": governor})


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """What the workers answer; the broker is there."""
    given: dict[str, Any] = {}
    monkeypatch.setattr(governors, "stats", lambda app: given)
    with celery_at("memory://"):
        yield given


def governor(*argv: str) -> str:
    out = io.StringIO()
    call_command("queues", "governor", *argv, stdout=out)
    return out.getvalue()


def test_one_table_has_a_line_for_each_worker_in_order(answers: dict[str, Any], topology: Topology):
    answers["ingest@b"] = answer(topology, "antenna-ingest", info_of(FULL, recycled={"held": 3, "soft-limit": 2}))
    answers["ingest@a"] = answer(topology, "antenna-ingest", info_of(places=4, slots=3, running=2))
    answers["fallback@a"] = answer(topology, "antenna")
    answers["other@a"] = {}
    head, *lines = governor().splitlines()
    assert [name for name in governors.COLUMNS if name in head] == list(governors.COLUMNS)
    # Columns: running, held s, recycled, ended, buried, reasons.
    assert [" ".join(line.split()) for line in lines] == [
        f"fallback@a off{' -' * 10}",
        "ingest@a on consuming 32.4% 332MiB/1.0GiB container 12.5%/-/-/- 3/4 2 0 0 0 0 -",
        "ingest@b on held 92.3% 945MiB/1.0GiB container 12.5%/-/-/- 0/1 0 0 5 (held 3, soft-limit 2) 0 0 " + REASON,
        f"other@a{' -' * 11}",
    ]


def test_dry_run_only_would_hold(answers: dict[str, Any], topology: Topology):
    answers["ingest@a"] = answer(topology, "antenna-ingest", info_of(FULL, mode="dry-run"))
    assert "dry-run  would hold" in governor()
    assert not list(diagnostics.workers.worker_findings(topology, answers))


def test_unknown_memory_is_shown_as_unknown(answers: dict[str, Any], topology: Topology):
    answers["ingest@a"] = answer(topology, "antenna-ingest", info_of(Sample(faults=("The memory probe failed: no.",))))
    assert "unknown" in governor()


def test_json_is_everything_that_each_worker_reports(answers: dict[str, Any], topology: Topology):
    answers["ingest@a"] = answer(topology, "antenna-ingest", info_of(FULL))
    answers["fallback@a"] = answer(topology, "antenna")
    fallback, ingest = json.loads(governor("--json"))
    assert fallback == {"worker": "fallback@a", "queues": ["antenna"], "mode": "off", "governor": None}
    assert (ingest["worker"], ingest["queues"], ingest["mode"]) == ("ingest@a", ["antenna-ingest"], "on")
    assert ingest["governor"]["reasons"] == [REASON]
    assert ingest["governor"]["memory_limit_bytes"] == 1024 * MIB


def test_no_answering_worker_is_one_sentence(answers: dict[str, Any]):
    with pytest.raises(
        CommandError, match=r"^No worker answered within 2 s; start them \('python .* all'\), or see .* at memory://"
    ):
        governor()


def found(topology: Topology, answers: dict[str, Any]) -> dict[str, tuple[str, str]]:
    return {item.name: (item.level, item.sentence) for item in diagnostics.workers.worker_findings(topology, answers)}


def test_workers_that_take_tasks_are_nothing_to_report(topology: Topology):
    healthy = {f"{row.key}@a": answer(topology, row.queue, info_of()) for row in topology.workloads}
    assert found(topology, {**healthy, "ungoverned@a": answer(topology, "antenna")}) == {}


def test_worker_that_holds_is_a_warning_while_another_takes_the_work(topology: Topology):
    both = {
        "ingest@a": answer(topology, "antenna-ingest", info_of(FULL)),
        "ingest@b": answer(topology, "antenna-ingest", info_of()),
    }
    assert found(topology, both) == {"held": ("warning", f"ingest@a takes no tasks: {REASON}.")}


@pytest.mark.parametrize("beside", [None, "dry-run"], ids=["ungoverned", "dry-run"])
def test_worker_that_cannot_hold_takes_the_work(topology: Topology, beside: str | None):
    other = info_of(FULL, mode=beside) if beside else None
    both = {
        "ingest@a": answer(topology, "antenna-ingest", info_of(FULL)),
        "ingest@b": answer(topology, "antenna-ingest", other),
    }
    assert set(found(topology, both)) == {"held"}


def test_queue_whose_workers_all_hold_is_an_error(topology: Topology):
    held = {f"ingest@{host}": answer(topology, "antenna-ingest", info_of(FULL)) for host in "ab"}
    level, sentence = found(topology, {**held, "fallback@a": answer(topology, "antenna", info_of())})["all-held"]
    assert level == "error"
    assert sentence.startswith("Every worker of antenna-ingest is held: ingest@a, ingest@b.")


def test_holding_worker_is_not_reported_as_a_missing_consumer(
    answers: dict[str, Any], topology: Topology, monkeypatch: pytest.MonkeyPatch, app: Any, db: None
):
    rows = [topology.workload(queue) for queue in ("antenna-ingest", "antenna-housekeeping")]
    states = [QueueState(row.queue, row.service, 7, 0) for row in rows]
    monkeypatch.setattr(diagnostics.queues, "queue_states", lambda *_: states)
    answers["ingest@a"] = answer(topology, "antenna-ingest", info_of(FULL))
    errors = [(item.name, item.sentence) for item in diagnostics.findings(topology, app, "") if item.level == "error"]
    assert [(name, sentence.split(" has ")[0].split(":")[0]) for name, sentence in errors] == [
        ("no-consumer", "antenna-housekeeping"),
        ("all-held", "Every worker of antenna-ingest is held"),
    ]


def test_probe_that_fails_is_a_warning_with_its_sentence(topology: Topology):
    fault = "The GPU probe failed: NVML says: Unknown Error."
    level, sentence = found(
        topology, {"ingest@a": answer(topology, "antenna-ingest", info_of(replace(ROOM, faults=(fault,))))}
    )["probe"]
    assert level == "warning"
    assert sentence.startswith("ingest@a ")
    assert sentence.endswith(fault)


def test_tasks_suspected_of_having_killed_a_worker_are_a_warning(topology: Topology):
    suspects = [f"id-{number}" for number in range(7)]
    level, sentence = found(
        topology, {"ingest@a": answer(topology, "antenna-ingest", info_of(ROOM, suspects=suspects))}
    )["suspect"]
    assert level == "warning"
    assert "while running id-0, id-1, id-2, id-3, id-4 and 2 more; " in sentence
