"""Fixtures of the unit tests: SQLite, no broker, and an unreachable NATS."""

import pytest
from rest_framework.test import APIClient

from tests.support.product.job_setup import World, new_world


@pytest.fixture(autouse=True)
def nats_away(settings):
    """Unit tests do not use NATS; all code must work while it is unreachable."""
    settings.NATS_URL = ""


@pytest.fixture
def world(db) -> World:
    return new_world()


@pytest.fixture
def client(world: World) -> APIClient:
    """A client of the API that is signed in as the world's user."""
    client = APIClient()
    client.force_authenticate(world.user)
    return client
