"""Fixtures of the tests of pipelines."""

import pytest

from tests.support.product.job_setup import World, new_world


@pytest.fixture(autouse=True)
def nats_away(settings):
    """Unit tests do not use NATS."""
    settings.NATS_URL = ""


@pytest.fixture
def world(db) -> World:
    return new_world()
