"""How many calls are sent ahead: as many as workers end in a moment, never fewer than they can run."""

from ami.admission.windows import LEAST_FACTOR, MOST_FACTOR, Window


def test_window_grows_while_it_is_emptied_quickly_and_shrinks_again():
    window, now = Window(), 0.0
    assert window.look(0, 4, now)
    assert window.size(4) == 8
    for _ in range(10):
        window.sent(window.size(4))
        now += 0.05
        assert window.look(0, 4, now)
    assert window.factor == MOST_FACTOR
    for _ in range(10):
        window.sent(8)
        now += 2.0
        window.look(0, 4, now)
    assert window.factor == LEAST_FACTOR


def test_long_tasks_keep_the_smallest_window():
    window, now = Window(), 0.0
    window.look(0, 4, now)
    window.sent(8)
    for active in (7, 6, 5):
        now += 10
        window.look(active, 4, now)
    assert window.size(4) == 8


def test_nothing_is_sent_until_a_part_of_the_window_is_free():
    window = Window()
    assert not window.look(7, 4, 1.0)
    assert window.look(6, 4, 2.0)
    assert Window(factor=8).look(16, 4, 3.0)
    assert not Window(factor=8).look(17, 4, 3.0)
    assert Window().size(1) == 4
