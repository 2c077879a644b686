"""Every storage that needs no network, each test in a place of its own."""

import os
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from ami.transports.objectstore.storage.cloud import CloudObjects
from ami.transports.objectstore.storage.port import Storage
from tests.support import s3_server
from tests.support.transports.recording_server import Recorder, recording
from tests.support.transports.storage_location import StorageLocation

#: Its server is a process of its own.
S3 = pytest.param("s3", marks=pytest.mark.processes)

#: A request waits for no less on a machine that is busy with other things.
TIMEOUT_SECONDS = 60.0


@pytest.fixture(scope="session")
def s3() -> Iterator[dict[str, Any]]:
    """What opens a place on S3: in the bucket of ANTENNA_TEST_S3_URL, else on a server of the tests' own."""
    if url := os.environ.get("ANTENNA_TEST_S3_URL"):
        parts = urlsplit(url)
        place = {"bucket": parts.netloc, "prefix": f"{parts.path}/{uuid.uuid4().hex}".strip("/")}
        place["timeout_seconds"] = TIMEOUT_SECONDS
        yield place
        written = CloudObjects.s3(**place)
        for key in written.list(""):
            written.delete(key)
        return
    with s3_server.running() as server:
        yield {
            "bucket": server.make_bucket("antenna"),
            "prefix": "tests",
            "endpoint": server.endpoint,
            "timeout_seconds": TIMEOUT_SECONDS,
            **server.credentials,
        }


@pytest.fixture(params=["memory", "folder", S3, pytest.param("s3 in a subprocess", marks=pytest.mark.processes)])
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def somewhere(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> Callable[[], StorageLocation]:
    """Each call is another empty place of the kind."""

    def make() -> StorageLocation:
        name = uuid.uuid4().hex
        if kind == "memory":
            return StorageLocation(kind, {})
        if kind == "folder":
            return StorageLocation(kind, {"path": str(tmp_path / name), "durable": False})
        s3 = request.getfixturevalue("s3")
        return StorageLocation(kind, {**s3, "prefix": f"{s3['prefix']}/{name}"})

    return make


@pytest.fixture
def storage(somewhere: Callable[[], StorageLocation]) -> Storage:
    return somewhere().open()


@pytest.fixture(scope="session")
def recording_server() -> Iterator[Recorder]:
    with recording() as recorder:
        yield recorder


@pytest.fixture
def recorder(recording_server: Recorder) -> Recorder:
    """A server that keeps what it is asked."""
    recording_server.begin()
    return recording_server
