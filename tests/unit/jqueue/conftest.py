"""Every storage that a queue may stand on without a network, and both queues on each."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ami.jqueue import BrokerQueue, DirectQueue, InMemoryStorage, LocalFileSystemStorage
from tests.support.transports.blob_storages import OneBlob

STORAGES: dict[str, Callable[[Path], Any]] = {
    "memory": lambda folder: InMemoryStorage(),
    "folder": lambda folder: LocalFileSystemStorage(folder / "queue", journal=True),
    "file": lambda folder: LocalFileSystemStorage(folder / "queue.json"),
    "one blob": lambda folder: OneBlob(),
}


@pytest.fixture(params=STORAGES)
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    return STORAGES[request.param](tmp_path)


class Direct(DirectQueue):
    """A direct queue that can be entered, so that tests read the same for both."""

    async def __aenter__(self) -> "Direct":
        return self

    async def __aexit__(self, *_: object) -> None:
        return None


@pytest.fixture(params=[BrokerQueue, Direct])
def queue(request: pytest.FixtureRequest, storage: Any) -> Any:
    return request.param(storage)
