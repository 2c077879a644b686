"""A network between the writers of a journal, and a clock that lets none of them wait."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.transports.flaky_network import FlakyNetwork, hasty


@pytest.fixture
def network() -> FlakyNetwork:
    return FlakyNetwork()


@pytest.fixture
def clock() -> Iterator[Any]:
    with hasty() as standing:
        yield standing
