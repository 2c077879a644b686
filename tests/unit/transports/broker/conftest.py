"""A broker of its own for each test: in a folder, in memory, and in memory that behaves like a remote storage."""

import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kombu import Connection

from ami.transports import register
from ami.transports.objectstore.broker import broker_storage, transport
from ami.transports.objectstore.storage.memory import MemoryObjects
from tests.support.soak import soak


class Remote(MemoryObjects):
    """Memory that is polled as rarely as a bucket."""

    is_remote = True


#: Memory has the branches of a folder's broker and the journal of a bucket's: tests of what is its own name it.
PLACES = soak(("file", "remote"), ("file", "memory", "remote"))


@pytest.fixture(params=PLACES)
def url(request, tmp_path, monkeypatch) -> str:
    register()
    if request.param == "file":
        return f"objectstore+file://{tmp_path}/broker"
    name = uuid.uuid4().hex
    if request.param == "remote":
        monkeypatch.setitem(broker_storage._memories, f"memory://{name}", Remote())
        monkeypatch.setattr(transport, "POLL_SECONDS", 0.05)
        monkeypatch.setattr(transport, "LONGEST_POLL_SECONDS", 0.05)
    return f"objectstore+memory://{name}"


@pytest.fixture
def folder_url(tmp_path) -> str:
    register()
    return f"objectstore+file://{tmp_path}/broker"


@pytest.fixture
def connect(url) -> Iterator[Callable[..., Any]]:
    """Open connections to the broker; they are closed after the test."""
    opened = []

    def connecting(**options: Any) -> Connection:
        opened.append(Connection(url, transport_options=options))
        opened[-1].connect()
        return opened[-1]

    yield connecting
    for connection in opened:
        connection.release()
