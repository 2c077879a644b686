"""What `manage.py check` says about the largest picture and the memory of the processes that decode it."""

from dataclasses import replace

import pytest

from ami.ml.checks import check_largest_picture
from ami.topology.topology import Topology


def with_rows(topology: Topology, routing: str = "split", **changes: object) -> Topology:
    rows = (replace(row, **changes) if row.key == "INGEST" else row for row in topology.workloads)
    return Topology(tuple(rows), routing=routing)


def test_the_rows_of_the_table_decode_what_the_setting_admits() -> None:
    assert check_largest_picture() == []


def test_setting_above_a_rows_memory_is_named_with_both_remedies(settings) -> None:
    settings.ANTENNA_MAX_MEGAPIXELS = 178
    (message,) = check_largest_picture()
    assert message.id == "ml.W001"
    assert message.msg.startswith("ANTENNA_MAX_MEGAPIXELS=178 admits pictures that take 711 MiB to decode, and a")
    assert "process of 'antenna-ingest' has 384 MiB for them" in message.msg
    assert message.hint == "Set ANTENNA_INGEST_MAX_MEMORY_PER_CHILD_KIB=924688 or more, or ANTENNA_MAX_MEGAPIXELS=92."


@pytest.mark.parametrize("change", ["memory", "megapixels"])
def test_either_remedy_is_enough(settings, change: str) -> None:
    settings.ANTENNA_MAX_MEGAPIXELS = 178 if change == "memory" else 92
    if change == "memory":
        settings.ANTENNA_TOPOLOGY = with_rows(settings.ANTENNA_TOPOLOGY, max_memory_per_child_kib=924_688)
    assert check_largest_picture() == []


@pytest.mark.parametrize(
    ("routing", "changes", "queues"),
    [
        ("split", {"max_memory_per_child_kib": 256 * 1024}, ["antenna-ingest"]),
        ("split", {"max_memory_per_child_kib": 256 * 1024, "hard_memory_per_child_kib": 600 * 1024}, []),
        ("split", {"max_memory_per_child_kib": 256 * 1024, "pool": "threads"}, []),
        ("single", {"max_memory_per_child_kib": 256 * 1024}, []),
    ],
)
def test_the_limit_of_the_process_that_runs_the_task_counts(settings, routing, changes, queues) -> None:
    settings.ANTENNA_TOPOLOGY = with_rows(settings.ANTENNA_TOPOLOGY, routing, **changes)
    assert [queue for message in check_largest_picture() for queue in queues if queue in message.msg] == queues
    assert len(check_largest_picture()) == len(queues)
