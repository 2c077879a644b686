"""What is tried when a storage is opened: conditional writes in a bucket, locks, links and renames in a folder."""

import errno
import fcntl
import os
import threading

import pytest
from kombu import Connection

from ami.transports import register
from ami.transports.objectstore.broker import broker_storage
from ami.transports.objectstore.storage import verification
from ami.transports.objectstore.storage.cloud import CloudObjects
from ami.transports.objectstore.storage.errors import StorageError, StorageFullError, UnfitStorageError
from ami.transports.objectstore.storage.verification import CONTENT, MARKER, verify_folder
from tests.support.transports.careless_bucket import MATCH, NONE_MATCH, environment, served

MARKER_PATH = f"/bucket/prefix/{MARKER}"


@pytest.fixture(autouse=True)
def new_process(monkeypatch):
    """As in a process that has verified nothing yet; call it for another one."""

    def begin():
        monkeypatch.setattr(verification, "_verified", set())
        broker_storage._forget_opened()

    begin()
    return begin


def objects(bucket):
    return CloudObjects.s3(
        "bucket",
        "prefix",
        endpoint=bucket.endpoint,
        region="us-east-1",
        access_key_id="testing-id",
        secret_access_key="testing-secret-access-key",
    )


# Buckets.


@pytest.mark.parametrize(
    ("faults", "fact"),
    [
        ({"ignores": (MATCH, NONE_MATCH)}, "If-None-Match"),
        ({"ignores": (NONE_MATCH,)}, "If-None-Match"),
        ({"ignores": (MATCH,)}, "If-Match"),
        ({"refuses": (501, "NotImplemented")}, "has no conditional writes: .*501"),
    ],
)
@pytest.mark.parametrize("has_marker", [False, True])
def test_bucket_that_keeps_no_condition_is_refused(faults, fact, has_marker):
    with served(**faults) as bucket:
        if has_marker:
            bucket.objects[MARKER_PATH] = CONTENT
        for _ in range(2):
            with pytest.raises(UnfitStorageError, match=fact) as refusal:
                objects(bucket).verify()
        assert "s3://bucket/prefix" in str(refusal.value)
        assert "use a service that has them" in str(refusal.value)


def test_bucket_that_confirms_writes_and_makes_none_is_refused():
    with served(forgets=True) as bucket, pytest.raises(UnfitStorageError):
        objects(bucket).verify()


def test_conditions_are_tried_once_a_process_on_one_object(new_process):
    with served() as bucket:
        writes = []
        for _ in range(3):
            new_process()
            for _ in range(100):
                objects(bucket).verify()
            writes.append(len(bucket.writes))
        assert writes == [3, 5, 7]
        assert bucket.objects == {MARKER_PATH: CONTENT}


def test_processes_may_try_at_the_same_time(monkeypatch):
    monkeypatch.setattr(verification, "once", lambda _, verify: verify())
    with served() as bucket:
        failures = []

        def verify():
            try:
                objects(bucket).verify()
            except Exception as error:
                failures.append(error)

        threads = [threading.Thread(target=verify) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failures
        assert bucket.objects == {MARKER_PATH: CONTENT}


@pytest.mark.parametrize("refuses", [(403, "AccessDenied"), (404, "NoSuchBucket"), (503, "SlowDown")])
def test_other_refusals_are_errors_of_the_storage(refuses):
    with served(refuses=refuses) as bucket:
        with pytest.raises(StorageError, match=f"{MARKER}.*{refuses[1]}"):
            objects(bucket).verify()
        bucket.refuses = None
        objects(bucket).verify()


@pytest.mark.parametrize("service", ["gcs", "azure"])
def test_other_services_get_versions_that_they_understand(service, recorder):
    recorder.answer = recorder.answer._replace(status=412)
    secrets = {"gcs": {"bearer_token": "t"}, "azure": {"account_name": "account", "sas_key": "sig=s"}}[service]
    getattr(CloudObjects, service)("bucket", endpoint=recorder.url, **secrets).verify()
    _, replace = recorder.take()
    name, value = {"gcs": ("x-goog-if-generation-match", "1"), "azure": ("if-match", '"0x0000000000000000"')}[service]
    assert replace.headers[name] == value


@pytest.fixture
def broker(monkeypatch):
    """Connect to a broker in the bucket."""
    register()

    def connect(bucket):
        for name, value in environment(bucket).items():
            monkeypatch.setenv(name, value)
        return Connection("objectstore+s3://bucket/prefix")

    return connect


@pytest.mark.parametrize("faults", [{"ignores": (MATCH,)}, {"ignores": (NONE_MATCH,)}])
def test_connection_is_refused_before_the_broker_holds_anything(broker, faults):
    with served(**faults) as bucket:
        with broker(bucket) as connection:
            # Neither retried nor taken for a broker that does not answer.
            with pytest.raises(UnfitStorageError):
                connection.ensure_connection(max_retries=3)
            assert not issubclass(UnfitStorageError, connection.connection_errors)
        assert set(bucket.objects) <= {MARKER_PATH}


def test_hundred_connections_of_a_process_try_once(broker):
    with served() as bucket:
        for _ in range(100):
            with broker(bucket) as connection:
                connection.connect()
        assert bucket.writes.count(MARKER_PATH) == 3


def test_bucket_that_calls_every_write_a_conflict_is_refused(broker):
    refuses = (412, "PreconditionFailed")
    with served(refuses=refuses) as bucket, broker(bucket) as connection, connection.channel() as channel:
        declare = channel.queue_declare
        pytest.raises(UnfitStorageError, declare, "queue").match("has no such object")


# Folders.


def fails(number):
    def call(*_, **__):
        raise OSError(number, os.strerror(number))

    return call


def replaces(source, target, **_):
    with open(source, "rb") as file, open(target, "wb") as other:
        other.write(file.read())


@pytest.mark.parametrize(
    ("module", "name", "call", "fact"),
    [
        (os, "link", fails(errno.EPERM), "hard links"),
        (os, "link", fails(errno.ENOTSUP), "hard links"),
        (os, "link", replaces, "hard links that replace nothing"),
        (fcntl, "flock", fails(errno.ENOLCK), "locks"),
        (fcntl, "flock", fails(errno.ENOSYS), "locks"),
        (fcntl, "flock", lambda *_: None, "locks .* that exclude"),
        (os, "rename", fails(errno.EEXIST), "renames"),
        (os, "rename", replaces, "renames"),
    ],
)
def test_folder_without_an_operation_is_refused(module, name, call, fact, tmp_path, monkeypatch):
    monkeypatch.setattr(module, name, call)
    with pytest.raises(UnfitStorageError, match=f"{tmp_path}.* lacks {fact}"):
        verify_folder(tmp_path)
    assert not list(tmp_path.iterdir())
    monkeypatch.undo()
    verify_folder(tmp_path)


def test_locks_are_tried_on_files_that_are_open_for_writing(tmp_path, monkeypatch):
    """As a queue's are: a network file system refuses an exclusive lock of others."""
    flock = fcntl.flock

    def network(file, operation):
        if fcntl.fcntl(file, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        return flock(file, operation)

    monkeypatch.setattr(fcntl, "flock", network)
    verify_folder(tmp_path)


@pytest.mark.parametrize("number", [errno.EACCES, errno.EROFS])
def test_folder_that_is_read_only_is_an_error_of_the_storage(number, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "mkdir", fails(number))
    with pytest.raises(StorageError, match=os.strerror(number)) as refusal:
        verify_folder(tmp_path)
    assert not isinstance(refusal.value, StorageFullError)


@pytest.mark.parametrize("operation", [(os, "mkdir"), (os, "link"), (fcntl, "flock")])
def test_full_disk_is_opened_and_tried_again(operation, tmp_path, monkeypatch):
    with monkeypatch.context() as full:
        full.setattr(*operation, fails(errno.ENOSPC))
        verify_folder(tmp_path)
    with monkeypatch.context() as unfit:
        unfit.setattr(os, "link", fails(errno.EPERM))
        with pytest.raises(UnfitStorageError):
            verify_folder(tmp_path)


def test_folder_broker_is_refused_before_it_holds_anything(tmp_path, monkeypatch):
    register()
    monkeypatch.setattr(os, "link", fails(errno.EPERM))
    with Connection(f"objectstore+file://{tmp_path}/broker") as connection, pytest.raises(UnfitStorageError):
        connection.ensure_connection(max_retries=3)
    assert not list((tmp_path / "broker").iterdir())


def test_folder_is_tried_once_a_process(tmp_path, monkeypatch):
    links = []
    link = os.link
    monkeypatch.setattr(os, "link", lambda *paths: links.append(paths) or link(*paths))
    for _ in range(100):
        verify_folder(tmp_path)
    assert len(links) == 2
    assert not list(tmp_path.iterdir())
