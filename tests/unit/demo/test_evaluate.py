"""Matching of found and true boxes."""

from demo.evaluate import Score, match, score, total


def test_a_box_found_twice_counts_once():
    assert score([(0, 0, 10, 10)], [(0, 0, 10, 10), (0, 0, 10, 9)]) == Score(matched=1, true=1, found=2)


def test_half_an_overlap_is_needed():
    assert score([(0, 0, 10, 10)], [(0, 0, 10, 5)]).matched == 1
    assert score([(0, 0, 10, 10)], [(0, 0, 10, 4.9)]).matched == 0


def test_as_many_pairs_as_possible_are_made():
    # Greedy matching would give the first true box the found box that only the second can use.
    true = [(0, 0, 10, 10), (0, 2, 10, 12)]
    found = [(0, 1, 10, 11), (0, -3, 10, 7)]
    assert match(true, found) == [(0, 1), (1, 0)]


def test_empty_pictures_are_perfect_when_nothing_is_found():
    nothing = score([], [])
    assert (nothing.recall, nothing.precision) == (1.0, 1.0)
    assert score([], [(0, 0, 1, 1)]).precision == 0.0


def test_scores_add_up():
    assert total([Score(1, 2, 3), Score(4, 5, 6)]) == Score(5, 7, 9)
