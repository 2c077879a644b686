"""Fixtures of the integration tests: the run's real database, NATS and broker, and unused job numbers."""

import itertools
import random

import pytest

from ami.jobs.services import jetstream
from ami.jobs.services.jetstream import connection
from tests.support.product.job_setup import World, new_world

_numbers = itertools.count(random.randrange(10**9, 2 * 10**9, 1000))  # noqa: S311


@pytest.fixture
def world(transactional_db) -> World:
    return new_world()


@pytest.fixture
def number() -> int:
    """A job number that is unused on this NATS server; its streams are deleted at the end."""
    connection.close()
    number = next(_numbers)
    yield number
    connection.close()
    jetstream.delete_job(number)
    connection.close()
