"""What is counted for a bill."""

import threading

import pytest

from ami.transports.objectstore.storage.errors import CASConflictError, StorageError
from ami.transports.objectstore.storage.folder import FolderObjects
from ami.transports.objectstore.storage.memory import MemoryObjects
from ami.transports.objectstore.storage.port import Storage
from tests.support.transports.faulty_storage import Fault, FaultyStorage
from tests.support.transports.request_counter import RequestCounter, Traffic


def test_each_request_counts_by_its_kind():
    storage = RequestCounter(MemoryObjects())
    version = storage.create("a", b"1234")
    storage.replace("a", b"123", version)
    assert storage.read("a").content == b"123"
    assert storage.read("b") is None
    assert storage.list("") == ["a"]
    storage.delete("a")
    assert storage.traffic == Traffic(2, 1, 1, 1, 1, bytes_sent=7, bytes_received=3)
    assert storage.traffic.requests == 6


def test_a_refused_or_lost_request_counts_too():
    storage = RequestCounter(FaultyStorage(MemoryObjects(), [Fault.LOST_ANSWER, Fault.CONFLICT, Fault.LOST_REQUEST]))
    with pytest.raises(StorageError):
        storage.create("a", b"1234")
    with pytest.raises(CASConflictError):
        storage.replace("a", b"1", "1")
    with pytest.raises(StorageError):
        storage.read("a")
    assert storage.traffic == Traffic(read=1, create=1, replace=1, bytes_sent=5)


def test_a_long_list_comes_in_pages():
    objects = MemoryObjects()
    for number in range(1001):
        objects.create(f"{number}", b"")
    storage = RequestCounter(objects)
    storage.list("")
    storage.list("none")
    storage.list("1000")
    assert storage.traffic.list == 2 + 1 + 1


def test_traffic_is_told_since_a_moment():
    storage = RequestCounter(MemoryObjects())
    storage.create("a", b"12")
    before = storage.traffic
    storage.create("b", b"1")
    assert storage.traffic.since(before) == Traffic(create=1, bytes_sent=1)


def test_no_request_of_many_threads_is_missed():
    storage = RequestCounter(MemoryObjects())
    threads = [threading.Thread(target=lambda: [storage.read("a") for _ in range(500)]) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert storage.traffic == Traffic(read=4000)


def test_it_looks_like_the_storage_it_counts(tmp_path):
    memory, folder = RequestCounter(MemoryObjects()), RequestCounter(FolderObjects(tmp_path))
    assert isinstance(memory, Storage)
    assert memory.is_remote is False
    assert memory.signature is None
    folder.create("a", b"")
    assert folder.signature("a") == FolderObjects(tmp_path).signature("a")
    assert folder.traffic.requests == 1
