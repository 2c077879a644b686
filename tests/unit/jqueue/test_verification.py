"""Every shape of the job queue refuses a storage that keeps no promise, before the first job is in it."""

import asyncio
import errno
import fcntl
import os

import pytest

from ami.jqueue import DirectQueue, GCSStorage, LocalFileSystemStorage, S3Storage
from ami.jqueue.adapters.storage import filesystem, local_import
from ami.jqueue.domain.errors import UnfitStorageError
from ami.transports.objectstore.storage import verification
from tests.support.transports.careless_bucket import MATCH, NONE_MATCH, environment, served
from tests.support.transports.cloud_clients import Client, Session

MARKER = "queue.conditional-writes"


@pytest.fixture(autouse=True)
def new_process(monkeypatch):
    """As in a process that has verified nothing yet."""
    monkeypatch.setattr(verification, "_verified", set())


def enqueue(storage):
    return asyncio.run(DirectQueue(storage).enqueue("task", b"payload"))


@pytest.mark.parametrize("ignored", [MATCH, NONE_MATCH])
@pytest.mark.parametrize("journal", [False, True])
def test_queue_in_a_bucket(journal, ignored, monkeypatch):
    with served(ignores=(ignored,)) as bucket:
        for name, value in environment(bucket).items():
            monkeypatch.setenv(name, value)
        with pytest.raises(UnfitStorageError):
            enqueue(S3Storage("bucket", "queue", journal=journal))
        assert set(bucket.objects) == {f"/bucket/{MARKER}"}
    with served() as bucket:
        monkeypatch.setenv("AWS_ENDPOINT_URL", bucket.endpoint)
        for _ in range(3):
            enqueue(S3Storage("bucket", "queue", journal=journal))
        assert bucket.writes.count(f"/bucket/{MARKER}") == 3


class CarelessSession(Session):
    ignored = ""

    async def put_object(self, **request):
        request.pop(self.ignored, None)
        return await super().put_object(**request)


class CarelessClient(Client):
    """Its server writes whatever the generation is."""

    def bucket(self, name):
        found = super().bucket(name)
        blob_of = found.blob

        def blob(name):
            blob = blob_of(name)
            upload = blob.upload_from_string
            blob.upload_from_string = lambda content, *, content_type, if_generation_match: upload(
                content,
                content_type=content_type,
                if_generation_match=self.objects.get(blob.place, (b"", 0))[1],
            )
            return blob

        found.blob = blob
        return found


@pytest.mark.parametrize("ignored", ["IfMatch", "IfNoneMatch"])
def test_queue_through_a_session_of_the_user(ignored):
    session = CarelessSession()
    session.ignored = ignored
    with pytest.raises(UnfitStorageError, match="s3://bucket/queue ignores"):
        enqueue(S3Storage("bucket", "queue", session))
    assert set(session.objects) == {("bucket", MARKER)}
    session.ignored = ""
    enqueue(S3Storage("bucket", "queue", session))


def test_queue_through_a_client_of_the_user():
    client = CarelessClient()
    with pytest.raises(UnfitStorageError, match="gs://bucket/queue ignores"):
        enqueue(GCSStorage("bucket", "queue", client))
    assert set(client.objects) == {("bucket", MARKER)}


@pytest.mark.parametrize("journal", [False, True])
@pytest.mark.parametrize(("module", "name"), [(fcntl, "flock"), (os, "link")])
def test_queue_in_a_folder(journal, module, name, tmp_path, monkeypatch):
    def fail(*_):
        raise OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP))

    with monkeypatch.context() as unfit:
        unfit.setattr(module, name, fail)
        with pytest.raises(UnfitStorageError):
            enqueue(LocalFileSystemStorage(tmp_path / "queue", journal=journal))
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
    enqueue(LocalFileSystemStorage(tmp_path / "queue", journal=journal))


def test_folder_is_tried_where_a_link_leads(tmp_path, monkeypatch):
    """The folder of the link may be read-only, or on another disk."""
    tried = []
    monkeypatch.setattr(filesystem, "verify_folder", tried.append)
    (tmp_path / "queue").symlink_to(tmp_path / "elsewhere" / "queue")
    (tmp_path / "elsewhere").mkdir()
    enqueue(LocalFileSystemStorage(tmp_path / "queue"))
    assert tried == [tmp_path / "elsewhere"]


def test_queue_is_not_imported_into_a_folder_that_is_unfit(tmp_path, monkeypatch):
    queue = DirectQueue(LocalFileSystemStorage(tmp_path / "file"))
    asyncio.run(queue.enqueue("task", b"payload"))

    def refuse(folder):
        assert folder == tmp_path / "target"
        raise UnfitStorageError("no locks")

    monkeypatch.setattr(local_import, "verify_folder", refuse)
    with pytest.raises(UnfitStorageError):
        local_import.import_queue(tmp_path / "file", tmp_path / "target" / "journal")
    assert len(asyncio.run(queue.read_state()).jobs) == 1
