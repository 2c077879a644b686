"""Any sequence of requests, some of them failing, leaves what a dictionary would hold."""

import itertools
from collections.abc import Callable
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ami.transports.objectstore.storage.errors import CASConflictError, StorageError
from ami.transports.objectstore.storage.port import Storage, Stored
from tests.support.soak import soak
from tests.support.transports.faulty_storage import Fault, FaultyStorage
from tests.support.transports.storage_location import StorageLocation

KEYS = ["a", "a/b", "c/d"]


class Request(NamedTuple):
    operation: str
    key: str
    #: For a replace: which of the versions ever seen it names, counted from the last one.
    age: int
    fault: Fault


requests = st.builds(
    Request,
    st.sampled_from(["create", "create", "replace", "replace", "replace", "delete", "read", "list"]),
    st.sampled_from(KEYS),
    st.integers(0, 3),
    st.sampled_from([Fault.NONE, Fault.NONE, *Fault]),
)


class Model:
    """A dictionary beside the storage. Contents are never the same twice."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage
        self.objects: dict[str, Stored] = {}
        self.versions: dict[str, list[str]] = {key: [] for key in KEYS}
        self._contents = map(str, itertools.count())

    def do(self, request: Request) -> None:
        faulty, before = FaultyStorage(self.storage, [request.fault]), self.objects.get(request.key)
        try:
            getattr(self, f"_{request.operation}")(faulty, request, before)
        except StorageError:
            assert request.fault in (Fault.LOST_ANSWER, Fault.LOST_REQUEST)
            self._find_out(request, before)
        assert self.storage.read(request.key) == self.objects.get(request.key)

    def _create(self, storage: Storage, request: Request, before: Stored | None) -> None:
        content = next(self._contents).encode()
        try:
            version = storage.create(request.key, content)
        except CASConflictError:
            assert before is not None or request.fault is Fault.CONFLICT
        else:
            assert before is None
            self._keep(request.key, Stored(content, version))

    def _replace(self, storage: Storage, request: Request, before: Stored | None) -> None:
        seen = self.versions[request.key]
        version = seen[-1 - request.age] if len(seen) > request.age else '"none"'
        content = next(self._contents).encode()
        try:
            new_version = storage.replace(request.key, content, version)
        except CASConflictError:
            assert before is None or before.version != version or request.fault is Fault.CONFLICT
        else:
            assert before is not None
            assert before.version == version
            self._keep(request.key, Stored(content, new_version))

    def _delete(self, storage: Storage, request: Request, before: Stored | None) -> None:
        storage.delete(request.key)
        self.objects.pop(request.key, None)

    def _read(self, storage: Storage, request: Request, before: Stored | None) -> None:
        assert storage.read(request.key) == before

    def _list(self, storage: Storage, request: Request, before: Stored | None) -> None:
        assert storage.list("") == sorted(self.objects)

    def _find_out(self, request: Request, before: Stored | None) -> None:
        """Without an answer, the request happened as a whole or not at all."""
        now = self.storage.read(request.key)
        if request.fault is Fault.LOST_REQUEST or request.operation in ("read", "list"):
            assert now == before
        if now is None:
            self.objects.pop(request.key, None)
        elif now != before:
            assert before is None or before.version != now.version
            self._keep(request.key, now)

    def _keep(self, key: str, stored: Stored) -> None:
        assert stored.version not in self.versions[key]
        self.versions[key].append(stored.version)
        self.objects[key] = stored


@pytest.mark.parametrize("kind", ["memory", "folder"], indirect=True)
@settings(max_examples=soak(50, 120), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(requests, max_size=25))
def test_a_storage_is_a_dictionary(somewhere: Callable[[], StorageLocation], requests: list[Request]):
    check(somewhere().open(), requests)


@pytest.mark.processes
@pytest.mark.parametrize("kind", ["s3"], indirect=True)
@settings(max_examples=soak(15, 25), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(requests, max_size=15))
def test_s3_is_a_dictionary(somewhere: Callable[[], StorageLocation], requests: list[Request]):
    check(somewhere().open(), requests)


def check(storage: Storage, requests: list[Request]) -> None:
    model = Model(storage)
    for request in requests:
        model.do(request)
    assert storage.list("") == sorted(model.objects)
