"""The short and the long form of a test: about a tenth in ``make test``, the whole in ``make soak``."""

import os
from typing import TypeVar

Value = TypeVar("Value")

#: Set by ``make soak``, and read nowhere else.
VARIABLE = "ANTENNA_SOAK"


def soak(short: Value, long: Value) -> Value:
    """Return ``long`` under ``make soak``, and ``short`` otherwise: a number, or what a test is parametrised with.

    ``short`` must meet every branch that ``long`` meets; it is fewer of the same, not less of it.
    """
    return long if os.environ.get(VARIABLE) else short
