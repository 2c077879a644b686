"""A month's requests and their price."""

import dataclasses

import pytest

from ami.transports.objectstore.cost import month
from ami.transports.objectstore.cost.month import Load
from ami.transports.objectstore.cost.requests import PRICES, Requests
from ami.transports.objectstore.cost.sample import Sample

LOAD = Load(messages=1000, workers=2, queues=4, batch=1, idle_hours=100, task_seconds=2, has_heartbeats=True)
EACH = Sample(
    stored_bytes=1000,
    published=Requests(get=2, put=1),
    claimed=Requests(get=1, put=1),
    acknowledged=Requests(get=1, put=1),
    poll=Requests(get=2),
    beat=Requests(get=3, put=1, list=1),
    renewal=Requests(put=1),
    heartbeat=Requests(get=1),
)


def named(load: Load) -> dict[str, month.Row]:
    return {row.name: row for row in month.rows(load, EACH, Requests(get=0.1, put=0.1, delete=0.1))}


def test_messages_and_hours_are_multiplied():
    rows = named(LOAD)
    assert rows["publish"].month == Requests(get=2000, put=1000)
    # Two workers of two queues each: one read more for the second queue, one for the other worker.
    assert rows["presence"].each == Requests(get=5, put=1, list=1).times(3600 / 20)
    assert rows["presence"].times == 2 * 100
    assert rows["Celery's heartbeat"].each == Requests(get=1800)


def test_a_lease_is_renewed_as_often_as_a_beat_falls_into_a_task():
    assert named(LOAD)["renew the lease"].each.put == pytest.approx(2 / 20)


def test_workers_without_heartbeats_send_none():
    assert "Celery's heartbeat" not in named(dataclasses.replace(LOAD, has_heartbeats=False))


def test_each_queue_has_a_worker_and_each_worker_a_queue():
    places = {(8, 2): (1, 4), (2, 8): (4, 1), (3, 2): (1, 2), (1, 1): (1, 1)}
    for (workers, queues), expected in places.items():
        load = dataclasses.replace(LOAD, workers=workers, queues=queues)
        assert (load.queues_each, load.workers_each) == expected


def polls(messages: int, **changed: float) -> float:
    return month.polls_per_hour(dataclasses.replace(LOAD, messages=messages, workers=1, **changed))


def test_a_worker_without_messages_polls_at_the_longest_pause():
    assert polls(0) == 3600 / 8


def test_the_more_messages_come_the_more_is_polled_until_none_is_in_vain():
    # One message in ten seconds: polled in vain after 1, 2.5, 4.75 and 8.125 s.
    assert polls(36_000) == pytest.approx(4 * 360)
    assert polls(100) < polls(1000) < polls(36_000)
    # Two a second are always found by the poll or the acknowledgement before.
    assert polls(720_000) == 0


def test_rare_messages_hardly_change_what_an_idle_worker_polls():
    assert polls(1) == pytest.approx(3600 / 8, rel=0.01)


def test_an_hour_less_month_has_no_polls_to_count():
    assert polls(1000, idle_hours=0) == 3600 / 8
    assert all(
        row.times == 0 for row in named(dataclasses.replace(LOAD, idle_hours=0)).values() if row.unit != "message"
    )


def test_deletes_are_free_and_lists_as_dear_as_writes():
    for prices in PRICES.values():
        assert prices.of(Requests(delete=1_000_000)) == 0
        assert prices.list == prices.put > prices.get
        assert prices.source.startswith("https://")


def test_a_price_is_for_a_thousand():
    assert PRICES["s3"].of(Requests(get=1_000_000, put=1_000_000, list=1000)) == pytest.approx(0.4 + 5 + 0.005)
    rows = list(named(LOAD).values())
    assert month.price(rows, PRICES["s3"]) == pytest.approx(sum(PRICES["s3"].of(row.month) for row in rows))
