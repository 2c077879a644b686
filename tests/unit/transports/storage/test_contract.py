"""What every storage promises, asked of each of them."""

import threading
import uuid
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ami.transports.objectstore.storage.errors import CASConflictError
from ami.transports.objectstore.storage.port import Storage, Stored
from tests.support.soak import soak
from tests.support.transports.concurrent_writers import concurrent_writers
from tests.support.transports.storage_location import StorageLocation

CONTENTS = {
    "empty": b"",
    "every byte": bytes(range(256)),
    "lines": b"one\r\ntwo\n\x00",
    "larger than a part of an upload": b"0123456789abcdef" * 400_000,
}

REFUSED = [
    "",
    "/",
    "/absolute",
    "ends/",
    "a//b",
    ".",
    "..",
    "../up",
    "a/../b",
    "a/./b",
    "a\0b",
    "half \ud800",
    "n" * 201,
]

names = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="/\0"), min_size=1, max_size=12).filter(
    lambda name: name not in (".", "..")
)
keys = st.lists(names, min_size=1, max_size=3).map("/".join)


def test_there_is_nothing_at_first(storage: Storage):
    assert storage.read("a") is None
    assert storage.list("") == []
    storage.delete("a")


@pytest.mark.parametrize("content", CONTENTS.values(), ids=CONTENTS)
def test_what_was_written_is_read(storage: Storage, content: bytes):
    created = storage.create("folder/object", content)
    assert storage.read("folder/object") == Stored(content, created)
    replaced = storage.replace("folder/object", content + b"!", created)
    assert storage.read("folder/object") == Stored(content + b"!", replaced)
    assert created != replaced


def test_a_create_keeps_what_is_there(storage: Storage):
    version = storage.create("a", b"first")
    with pytest.raises(CASConflictError, match="'a'"):
        storage.create("a", b"second")
    assert storage.read("a") == Stored(b"first", version)


def test_a_replace_keeps_another_version(storage: Storage):
    first = storage.create("a", b"first")
    second = storage.replace("a", b"second", first)
    with pytest.raises(CASConflictError, match="'a'"):
        storage.replace("a", b"third", first)
    assert storage.read("a") == Stored(b"second", second)


def test_a_replace_makes_no_object(storage: Storage):
    version = storage.create("a", b"first")
    with pytest.raises(CASConflictError):
        storage.replace("b", b"second", version)
    storage.delete("a")
    with pytest.raises(CASConflictError):
        storage.replace("a", b"second", version)
    assert storage.list("") == []


def test_a_version_ends_with_its_object(storage: Storage):
    first = storage.create("a", b"first")
    storage.delete("a")
    second = storage.create("a", b"second")
    with pytest.raises(CASConflictError):
        storage.replace("a", b"third", first)
    assert storage.read("a") == Stored(b"second", second)


def test_the_same_content_again_is_another_version(storage: Storage, kind: str):
    if kind.startswith("s3"):
        pytest.skip("S3's ETag is the content's hash")
    first = storage.create("a", b"content")
    storage.replace("a", b"content", storage.replace("a", b"between", first))
    with pytest.raises(CASConflictError):
        storage.replace("a", b"third", first)


def test_a_delete_is_no_error_twice(storage: Storage):
    storage.create("a", b"")
    storage.delete("a")
    storage.delete("a")
    assert storage.read("a") is None


def test_a_list_has_the_keys_that_begin_so(storage: Storage):
    keys = ["a", "a/b", "a/b/c", "a/bc", "ab", "b/a", ".hidden", "é ~%2F+"]
    for key in keys:
        storage.create(key, key.encode())
    assert storage.list("") == sorted(keys)
    for prefix in ["a", "a/", "a/b", "a/b/", "b/", "c", "c/d/", ".", ".h", "é "]:
        assert storage.list(prefix) == sorted(key for key in keys if key.startswith(prefix)), prefix
    assert all(storage.read(key).content == key.encode() for key in keys)


@pytest.mark.parametrize("key", REFUSED)
def test_a_key_that_is_none_is_refused(storage: Storage, key: str):
    for use in (
        lambda: storage.read(key),
        lambda: storage.create(key, b""),
        lambda: storage.replace(key, b"", "1"),
        lambda: storage.delete(key),
    ):
        with pytest.raises(ValueError, match="the key|the name"):
            use()


@pytest.mark.parametrize("prefix", ["/", "/a", "a//", "../", "a/../b"])
def test_a_prefix_that_no_key_has_is_refused(storage: Storage, prefix: str):
    with pytest.raises(ValueError, match="key"):
        storage.list(prefix)


@settings(max_examples=soak(20, 40), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sets(keys, min_size=1, max_size=5))
def test_any_key_names_its_own_object(somewhere: Callable[[], StorageLocation], names: set[str]):
    storage = somewhere().open()
    for key in names:
        storage.create(key, key.encode())
    assert storage.list("") == sorted(names)
    assert {key: storage.read(key).content for key in names} == {key: key.encode() for key in names}


# Races.


def threads(count: int, work: Callable[[int], None]) -> None:
    """Run ``work`` in so many threads that begin together; the first error of any is raised."""
    barrier, errors = threading.Barrier(count), []

    def run(number: int) -> None:
        try:
            barrier.wait(60)
            work(number)
        except BaseException as error:
            errors.append(error)

    started = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in started:
        thread.start()
    for thread in started:
        thread.join(120)
    if errors:
        raise errors[0]


@pytest.fixture
def rounds(kind: str) -> int:
    return soak(8, 12) if kind.startswith("s3") else soak(20, 60)


def test_one_of_many_threads_creates(storage: Storage, rounds: int):
    for number in range(rounds):
        won = []

        def create(thread: int, key: str = f"round-{number}", won: list = won) -> None:
            content = f"{key} by {thread}".encode()
            try:
                won.append(Stored(content, storage.create(key, content)))
            except CASConflictError:
                return

        threads(6, create)
        assert won == [storage.read(f"round-{number}")]


def test_no_increment_of_many_threads_is_lost(storage: Storage, rounds: int):
    storage.create("count", b"0")
    each = rounds // 4
    replaced = []

    def increment(thread: int) -> None:
        left = each
        while left:
            stored = storage.read("count")
            try:
                storage.replace("count", str(int(stored.content) + 1).encode(), stored.version)
            except CASConflictError:
                continue
            replaced.append(stored.version)
            left -= 1

    threads(4, increment)
    assert int(storage.read("count").content) == 4 * each
    assert len(set(replaced)) == 4 * each


def test_a_version_is_replaced_once_while_others_delete(storage: Storage, rounds: int):
    created, replaced, lock = [], [], threading.Lock()

    def write(thread: int) -> None:
        for number in range(rounds):
            try:
                stored = storage.read("a")
                content = uuid.uuid4().bytes
                if stored is None:
                    version = storage.create("a", content)
                else:
                    version = storage.replace("a", content, stored.version)
            except CASConflictError:
                continue
            with lock:
                created.append(version)
                if stored is not None:
                    replaced.append(stored.version)
            if thread == 0 and number % 3 == 0:
                storage.delete("a")

    threads(4, write)
    assert len(set(replaced)) == len(replaced)
    assert set(replaced) <= set(created)
    assert len(set(created)) == len(created)


@pytest.mark.processes
@pytest.mark.parametrize("kind", ["folder", "s3"], indirect=True)
def test_one_of_many_processes_wins(somewhere: Callable[[], StorageLocation], rounds: int):
    place = somewhere()
    storage = place.open()
    with concurrent_writers(place, 4) as processes:
        for number in range(rounds):
            key = f"round-{number}"
            won = processes.race("create", key)
            stored = storage.read(key)
            assert won == {stored.content.decode(): stored.version}
            won = processes.race("replace", key, stored.version)
            stored = storage.read(key)
            assert won == {stored.content.decode(): stored.version}
