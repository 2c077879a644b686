"""Fixtures of the adoption's tests."""

import pytest

from tests.support.product.job_setup import World, new_world


@pytest.fixture
def world(db) -> World:
    return new_world()
