"""Invalid rows of the table are refused."""

from dataclasses import replace

import pytest

from ami.topology.errors import TopologyError
from ami.topology.table import INGEST, ROWS
from ami.topology.workload import CONSUMER_TIMEOUT_SECONDS

(INGEST_ROW,) = (row for row in ROWS if row.queue == INGEST)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"concurrency": 0}, "concurrency is 0; it must be between 1"),
        ({"prefetch_multiplier": 0}, "prefetch_multiplier is 0"),
        ({"pool": "eventlet"}, "choose one of prefork"),
        ({"soft_time_limit_seconds": 300}, "must be below hard_time_limit_seconds"),
        ({"hard_time_limit_seconds": 1800}, "consumer timeout"),
        ({"container_memory_kib": 1024 * 1024}, "raise it or lower concurrency"),
        ({"redirects": {"robot": "antenna"}}, "the origin 'robot'"),
    ],
)
def test_row_that_contradicts_itself_is_refused(changes, sentence):
    with pytest.raises(TopologyError, match=sentence):
        replace(INGEST_ROW, **changes)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.queue)
def test_incident_4_consumer_timeout_exceeds_every_hard_time_limit(row):
    assert row.hard_time_limit_seconds + 60 <= CONSUMER_TIMEOUT_SECONDS


(INGEST_ROW,) = (row for row in ROWS if row.queue == INGEST)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.queue)
def test_incident_6_container_holds_all_children_at_their_limit(row):
    assert row.memory_limit_kib > row.concurrency * row.max_memory_per_child_kib


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.queue)
def test_incident_18_grace_period_outlasts_the_longest_task(row):
    assert row.stop_grace_period_seconds > row.hard_time_limit_seconds
