"""The world of the unit tests: SQLite, no broker, and NATS away."""

import pytest

from tests.support.product.job_setup import World, new_world


@pytest.fixture(autouse=True)
def nats_away(settings):
    """No unit test talks to NATS; its absence is a state that everything must cope with."""
    settings.NATS_URL = ""


@pytest.fixture
def world(db) -> World:
    return new_world()
