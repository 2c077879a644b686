"""The deployment through pytest-celery, for this folder; the fixtures have that package's names."""

import secrets
from collections.abc import Callable, Iterator

import pytest

from tests.support.celery_suite.setup import Setup, setup_of
from tests.support.celery_suite.workers import Workers
from tests.support.containers.deployment import WORKERS, Deployment


@pytest.fixture(scope="package")
def celery_setup(deployment: Deployment) -> Iterator[Setup]:
    """All of it, started and answering."""
    deployment.until_healthy(*WORKERS)
    with setup_of(deployment) as made:
        yield made


@pytest.fixture(scope="package")
def workers(celery_setup: Setup) -> Workers:
    """The workers, by their queues."""
    return {worker.worker_queue: worker for worker in celery_setup.worker_cluster}


@pytest.fixture
def key() -> str:
    """What the keys of a test's tasks begin with."""
    return secrets.token_hex(6)


@pytest.fixture
def release(deployment: Deployment) -> Callable[[str], str]:
    """Let the task ``smoke.hold`` of a key end; every container sees the same files."""
    return lambda key: deployment.execute("celeryworker_housekeeping", "touch", f"/data/{key}")
