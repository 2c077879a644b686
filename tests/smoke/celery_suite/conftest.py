"""One worker container per queue, RabbitMQ, Redis and what they need besides, through pytest-celery; for this folder.

The fixtures have pytest-celery's names and live as long as this folder's tests: starting takes longer than all of them.
"""

import secrets
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, suppress
from typing import Any

import docker as engine
import pytest

from tests.support.celery_suite.containers import Database, Worker
from tests.support.celery_suite.processes import *  # noqa: F403
from tests.support.celery_suite.servers import *  # noqa: F403
from tests.support.celery_suite.servers import LABEL
from tests.support.celery_suite.vendor import CeleryTestSetup, ContainerError
from tests.support.celery_suite.workers import Workers
from tests.support.containers.effects import Effects
from tests.support.containers.engine import docker

#: How much of its end a failed test shows of each log, in characters.
LOG_SIZE = 4000


def pytest_configure(config: pytest.Config) -> None:
    """Set the option that the plugin of pytest-docker-tools would add."""
    config.option.reuse_containers = False


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
    """Show what the workers said in a test that failed, or the container that did not start."""
    report = yield
    if report.failed:
        if call.excinfo and isinstance(call.excinfo.value, ContainerError):
            report.sections.append(("the container", call.excinfo.value._container.logs()[-LOG_SIZE:]))
        with suppress(engine.errors.APIError):
            for queue, worker in getattr(item, "funcargs", {}).get("workers", {}).items():
                report.sections.append((queue, worker.logs()[-LOG_SIZE:]))
    return report


@pytest.fixture(scope="package")
def run_name() -> str:
    return secrets.token_hex(6)


@pytest.fixture(scope="package")
def docker_client() -> Iterator[engine.DockerClient]:
    with closing(engine.from_env()) as client:
        yield client


@pytest.fixture(scope="package", autouse=True)
def nothing_left(run_name: str) -> Iterator[None]:
    """First to be made, so last to be asked: nothing of this run is left in the engine."""
    yield
    label = f"label={LABEL}={run_name}"
    assert docker("ps", "--all", "--quiet", "--filter", label) == ""
    assert docker("network", "ls", "--quiet", "--filter", label) == ""
    assert docker("volume", "ls", "--quiet", "--filter", label) == ""


@pytest.fixture(scope="package")
def workers(celery_setup: CeleryTestSetup) -> Workers:
    """The workers, by their queues."""
    return {worker.worker_queue: worker for worker in celery_setup.worker_cluster}


@pytest.fixture(scope="package")
def effects(postgres: Database, migrated: None) -> Effects:
    """What the tests' own tasks did."""
    return Effects(postgres.host_url)


@pytest.fixture
def key() -> str:
    """What the keys of a test's tasks begin with."""
    return secrets.token_hex(6)


@pytest.fixture(scope="package")
def release(housekeeping_container: Worker) -> Callable[[str], str]:
    """Let the task ``suite.hold`` of a key end; every container sees the same files."""
    return lambda key: housekeeping_container.shell(f"touch /data/{key}")
