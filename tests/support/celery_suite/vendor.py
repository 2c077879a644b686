"""pytest-celery, as these tests use it; its plugin and that of pytest-docker-tools are off (pyproject.toml)."""

from collections.abc import Callable
from typing import Any
from unittest import mock

import celery

from config import celery_app


def _no_task(*function: Callable[..., Any], **_: Any) -> Any:
    """Stand in for ``shared_task``, bare or with options."""
    return function[0] if function else lambda decorated: decorated


# Its own tasks would become tasks of every application in this process, also of the one that other tests look at.
with mock.patch.object(celery, "shared_task", _no_task):
    from pytest_celery import (
        CeleryBackendCluster,
        CeleryBrokerCluster,
        CeleryTestBackend,
        CeleryTestContainer,
        CeleryTestSetup,
        CeleryTestWorker,
        CeleryWorkerCluster,
        CeleryWorkerContainer,
        RabbitMQContainer,
        RabbitMQTestBroker,
        RedisContainer,
    )

# So would its own application become the current one, which everything asks that names none.
celery_app.set_current()

__all__ = [
    "CeleryBackendCluster",
    "CeleryBrokerCluster",
    "CeleryTestBackend",
    "CeleryTestContainer",
    "CeleryTestSetup",
    "CeleryTestWorker",
    "CeleryWorkerCluster",
    "CeleryWorkerContainer",
    "RabbitMQContainer",
    "RabbitMQTestBroker",
    "RedisContainer",
]
