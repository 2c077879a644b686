"""How old the oldest message can be, by what was seen of its queue."""

from ami.telemetry.snapshots.waiting_age import Seen, bounds


def test_empty_queue_has_no_age():
    assert bounds(100, 0, []) == (0.0, 0.0)


def test_nothing_is_known_without_a_look():
    assert bounds(100, 5, []) == (None, 0.0)


def test_since_the_queue_was_empty():
    assert bounds(100, 5, [Seen(40, 0), Seen(70, 3)]) == (60.0, 30.0)


def test_since_all_that_waited_was_started():
    assert bounds(100, 5, [Seen(10, 4), Seen(60, 5, 4), Seen(90, 5, 1)])[0] == 90.0


def test_what_was_started_since_is_known_a_while_later():
    assert bounds(100, 5, [Seen(70, 3)], started_since=2, lag_seconds=12)[1] == 18.0
    assert bounds(100, 5, [Seen(70, 3)], started_since=3, lag_seconds=12)[1] == 0.0
