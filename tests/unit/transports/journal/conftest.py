"""A network between the writers of a journal, and a clock that lets none of them wait."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.unit.transports.journal.network import Network, hasty


@pytest.fixture
def network() -> Network:
    return Network()


@pytest.fixture
def clock() -> Iterator[Any]:
    with hasty() as standing:
        yield standing
