"""The text of a box that a unique constraint compares."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ami.main.services.boxes import bbox_key

sides = st.floats(min_value=-1e6, max_value=1e6)


def test_null_is_the_null_markers_key():
    assert bbox_key(None) == "null"


def test_numbers_are_normalised_to_two_decimals():
    assert bbox_key([1, 2.004, 3.999, -0.0]) == "1.00,2.00,4.00,0.00"


@pytest.mark.parametrize("bbox", [[1, 2, 3], [1, 2, 3, 4, 5], [1, 2, 3, float("nan")], [1, 2, 3, float("inf")]])
def test_invalid_box_is_refused(bbox):
    with pytest.raises(ValueError, match="four finite numbers"):
        bbox_key(bbox)


@given(st.tuples(sides, sides, sides, sides))
def test_a_key_fits_its_column_and_is_stable(bbox):
    key = bbox_key(bbox)
    assert len(key) <= 64
    assert bbox_key([float(number) for number in key.split(",")]) == key
