"""What every test may use: services from the environment, a virtual host of its own, and real worker processes."""

import os

import pytest

from tests.support.place import RABBITMQ, Place, new_place

NEED_NO_SERVICE = ("/unit/", "/smoke/", "/integration/processing_service/", "/integration/provision/")
SERVICES = ("CELERY_BROKER_URL", "RABBITMQ_MANAGEMENT_URL", "REDIS_URL", "DATABASE_URL", "NATS_URL")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give integration and acceptance tests the services, or skip them loudly; in CI their absence is a failure."""
    missing = [name for name in SERVICES if not os.environ.get(name)]
    if not missing or os.environ.get("CI"):
        return
    reason = f"needs {', '.join(missing)}: run through `make test`"
    for item in items:
        if not any(folder in str(item.path) for folder in NEED_NO_SERVICE):
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture
def place(request: pytest.FixtureRequest):
    """A broker of this test's own, and the worker processes it starts there: a virtual host of RabbitMQ, or what the
    test is parametrised with (indirectly, ``tests.support.place.BROKERS``).
    """
    with new_place(request.node.name, getattr(request, "param", RABBITMQ)) as made:
        yield made


@pytest.fixture
def database_place(place: Place, transactional_db):
    """A place whose worker processes use this run's test database."""
    place.use_test_database()
    return place
