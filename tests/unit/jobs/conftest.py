"""Fixtures of the unit tests: SQLite, no broker, and an unreachable NATS."""

import pytest

from tests.support.product.job_setup import World, new_world


@pytest.fixture(autouse=True)
def nats_away(settings):
    """Unit tests do not use NATS; all code must work while it is unreachable."""
    settings.NATS_URL = ""


@pytest.fixture
def world(db) -> World:
    return new_world()
