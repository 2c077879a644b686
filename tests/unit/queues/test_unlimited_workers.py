"""The live findings about workers that consume several queues, or run without their row's limits."""

from typing import Any

import pytest

from ami.queues.diagnostics.workers import worker_findings
from ami.topology.table import FALLBACK, INGEST
from ami.topology.topology import Topology, load

PREFORK = {
    "implementation": "celery.concurrency.prefork:TaskPool",
    "max-concurrency": 2,
    "max-tasks-per-child": 100,
    "timeouts": [240, 300],
}
SOLO = {"implementation": "celery.concurrency.solo:TaskPool", "max-tasks-per-child": None, "timeouts": []}


def found(*queues: str, pool: Any, table: Topology | None = None, **stats: Any) -> dict[str, str]:
    table = table or load({})
    known = {"fingerprint": table.fingerprint, "routing": table.routing}
    known |= {"queues": list(queues), "own_queues": list(queues)}
    answers = {"celery@a": {"topology": known, "pool": pool, "limits": {"max_memory_per_child": 524288}, **stats}}
    return {finding.name: finding.sentence for finding in worker_findings(table, answers)}


def test_worker_with_its_rows_limits_is_nothing_to_report():
    assert found(FALLBACK, pool=PREFORK, limits={"max_memory_per_child": 524288}) == {}
    assert found(FALLBACK, pool="N/A") == {}  # While it starts.


def test_worker_of_several_queues_is_named_with_its_queues():
    sentence = found(INGEST, FALLBACK, pool=PREFORK)["several-queues"]
    assert sentence.startswith("celery@a consumes 2 queues, antenna-ingest, antenna:")
    assert "'celery -A config worker -Q QUEUE'" in sentence


@pytest.mark.parametrize(
    ("pool", "limits", "lacking"),
    [
        (
            PREFORK | {"timeouts": [0, 0], "max-tasks-per-child": "N/A"},
            {"max_memory_per_child": 0},
            "a soft time limit, a hard time limit, recycling by tasks, a memory limit",
        ),
        (PREFORK | {"timeouts": [240, 0]}, {"max_memory_per_child": 524288}, "a hard time limit"),
        (PREFORK, {"max_memory_per_child": 0}, "a memory limit"),
        (SOLO, {"max_memory_per_child": 524288}, "limits, which its pool solo cannot have"),
    ],
    ids=["none", "hard", "memory", "solo"],
)
def test_worker_without_limits_is_named_with_what_it_lacks(pool: Any, limits: Any, lacking: str):
    sentence = found(FALLBACK, pool=pool, limits=limits)["no-limits"]
    assert sentence.startswith(f"celery@a runs without {lacking}: ")
    assert "'python -m ami.topology worker antenna'" in sentence


def test_pool_without_limits_is_nothing_to_report_where_the_row_has_it():
    assert found(FALLBACK, pool=SOLO, table=load({"ANTENNA_FALLBACK_POOL": "solo"})) == {}
