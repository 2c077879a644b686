"""Fixtures of the governor's tests; a module says with LIMIT_MIB how much memory its container has."""

from collections.abc import Iterator

import pytest

from tests.support.cgroups import MIB, Group, new_group
from tests.support.governor.memory_pressure import QUICK
from tests.support.place import Place


@pytest.fixture
def group(request: pytest.FixtureRequest) -> Iterator[Group]:
    """A memory cgroup of this test's own."""
    with new_group(request.module.LIMIT_MIB * MIB) as made:
        yield made


@pytest.fixture
def governed(place: Place) -> Place:
    """A place whose governors look often and hold no longer than they must."""
    place.environment.update(QUICK)
    place.queues("declare")
    return place
