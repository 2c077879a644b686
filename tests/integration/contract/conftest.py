"""Fixtures of this folder: one deployment, and clients of it."""

from collections.abc import Iterator

import httpx
import pytest

from tests.support.product.client_deployment import Deployment, deployed
from tests.support.product.push_service import PushService


@pytest.fixture(scope="module")
def deployment(django_db_setup, django_db_blocker) -> Iterator[Deployment]:
    """The deployment, started once for the tests of a file; they share its rows, which no other test sees."""
    with django_db_blocker.unblock(), deployed() as made:
        # The tests process the same captures one after the other.
        made.world.project.feature_flags = {"reprocess_all_images": True}
        made.world.project.save()
        yield made


@pytest.fixture(scope="module")
def token(deployment: Deployment) -> str:
    """A token of the project's owner."""
    return deployment.log_in()


@pytest.fixture
def client(deployment: Deployment, token: str) -> Iterator[httpx.Client]:
    """A client of the project's owner."""
    with deployment.client(token) as made:
        yield made


@pytest.fixture
def push_service() -> Iterator[PushService]:
    """A minimal push service that records its requests."""
    with PushService() as service:
        yield service
