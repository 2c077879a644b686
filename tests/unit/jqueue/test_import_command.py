"""``python -m ami.jqueue import``: one kind of queue becomes the other, and never are there two of it."""

import asyncio
import os
import re
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from ami.jqueue import DirectQueue, Job, JobStatus, LocalFileSystemStorage, QueueState, StorageError
from ami.jqueue.__main__ import main
from ami.jqueue.adapters.storage import file_blob, local_import
from ami.jqueue.core.codec import decode, encode
from ami.transports.objectstore.queue.commands import Enqueue
from ami.transports.objectstore.queue.factory import open_folder
from ami.transports.objectstore.storage.cloud import CloudObjects
from ami.transports.objectstore.storage.memory import MemoryObjects
from ami.transports.objectstore.storage.verification import verify_folder

WORKING = Job.new("t", b"2").with_status(JobStatus.IN_PROGRESS).with_heartbeat(datetime.now(UTC) + timedelta(hours=12))
STATE = QueueState(jobs=(Job.new("t", b"1"), WORKING, Job.new("t", b"3").with_status(JobStatus.DEAD)), version=9)


def opened(path, **settings):
    return DirectQueue(LocalFileSystemStorage(path, **settings))


def found(path, **settings):
    jobs = asyncio.run(opened(path, **settings).read_state()).jobs
    return {job.id: (job.payload, job.status, job.created_at) for job in jobs}


EXPECTED = {job.id: (job.payload, job.status, job.created_at) for job in STATE.jobs}


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "queue.json"
    path.write_bytes(encode(STATE))
    verify_folder(tmp_path)  # What fails or kills an import below is a step of its own.
    return path


def test_file_becomes_a_journal_and_is_an_error_from_then_on(file, tmp_path, capsys):
    target = tmp_path / "queue.journal"
    before = opened(file)
    assert asyncio.run(before.read_state()) == STATE
    assert main(["import", str(file), str(target)]) == 0
    assert capsys.readouterr().out == f"Imported 3 jobs from {file} into {target}\n"
    assert found(target) == found(target, journal=True) == EXPECTED
    for q in (before, opened(file), opened(file, journal=True)):
        with pytest.raises(StorageError, match=f"queue.json was imported into {target}: open that instead"):
            asyncio.run(q.enqueue("t", b"second truth"))
    assert decode((tmp_path / "queue.json.imported").read_bytes()) == STATE


def test_journal_becomes_a_file_and_is_an_error_from_then_on(file, tmp_path, capsys):
    journal, target = tmp_path / "journal", tmp_path / "new.json"
    main(["import", str(file), str(journal)])
    before = opened(journal)
    [claimed] = asyncio.run(before.dequeue())
    assert main(["import", str(journal), str(target)]) == 0
    assert target.is_file()
    state = asyncio.run(opened(target).read_state())
    assert [job.id for job in state.in_progress_jobs()] == [WORKING.id, claimed.id]
    for q in (before, opened(journal), opened(journal, journal=True)):
        with pytest.raises(StorageError, match=f"journal was imported into {target}: open that instead"):
            asyncio.run(q.enqueue("t", b"second truth"))


def test_repeated_import_finds_it_done(file, tmp_path, capsys):
    target = tmp_path / "queue.journal"
    main(["import", str(file), str(target)])
    asyncio.run(opened(target).enqueue("t", b"later"))
    assert main(["import", str(file), str(target)]) == 0
    assert "the jobs, by an earlier call," in capsys.readouterr().out
    assert len(found(target)) == 4


class KilledError(BaseException):
    pass


#: Every step of an import that changes the disk.
STEPS = [
    (local_import, "import_jobs"),
    (local_import, "names_to_disk"),
    (os, "link"),
    (file_blob.HeldFile, "replace"),
    (file_blob, "names_to_disk"),
    (local_import, "_finish"),
    (Path, "rename"),
    (local_import, "write_durably"),
    (file_blob.FileBlob, "write"),
]


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize(("place", "name"), STEPS, ids=lambda value: value if isinstance(value, str) else "")
@pytest.mark.parametrize("backwards", [False, True])
def test_killed_import_leaves_one_queue(file, tmp_path, monkeypatch, place, name, after, backwards):
    source, target = file, tmp_path / "target"
    if backwards:
        source = tmp_path / "journal"
        main(["import", str(file), str(source)])
    step = getattr(place, name)

    def killed(*arguments, **settings):
        if after:
            step(*arguments, **settings)
        raise KilledError

    with monkeypatch.context() as patched:
        patched.setattr(place, name, killed)
        try:
            main(["import", str(source), str(target)])
        except KilledError:
            held = []
            for path in (source, target):
                try:
                    held.append(found(path))
                except StorageError:
                    held.append(None)
            assert held in ([EXPECTED, {}], [EXPECTED, None], [None, None], [None, EXPECTED])
    assert main(["import", str(source), str(target)]) == 0
    assert found(target) == EXPECTED
    with pytest.raises(StorageError, match="was imported into"):
        found(source)


def test_interrupted_import_of_an_earlier_version_is_an_error(tmp_path):
    """It left the finished folder beside the path, and the file under another name."""
    (tmp_path / "queue.json.imported").write_bytes(encode(STATE))
    main(["import", str(tmp_path / "queue.json.imported"), str(tmp_path / "queue.json.importing")])
    (tmp_path / "queue.json.imported").write_bytes(encode(STATE))
    for journal in (False, True):
        with pytest.raises(StorageError, match=r"the import into .*queue.json was interrupted: repeat"):
            found(tmp_path / "queue.json", journal=journal)
    assert main(["import", str(tmp_path / "queue.json.imported"), str(tmp_path / "queue.json")]) == 0
    assert found(tmp_path / "queue.json") == EXPECTED


def test_journal_is_not_made_of_a_file_without_the_command(file):
    with pytest.raises(StorageError, match=r"is a file, not a journal: .* import .*queue.json FOLDER"):
        found(file, journal=True)
    assert decode(file.read_bytes()) == STATE


@pytest.mark.parametrize(
    ("source", "target", "message"),
    [
        ("none.json", "new", "none.json does not exist"),
        ("queue.json", "queue.json", "cannot be imported into itself: name another path"),
        ("queue.json", "folder", "folder exists already: name a new path"),
        ("queue.json", None, "TARGET is missing: name a new folder for a file, or a new file for a folder"),
        ("folder", "new", "folder is a folder without a journal"),
        ("broker", "new", "broker is a queue of a Celery broker: its messages are not jobs"),
        ("other.txt", "new", "this is not a queue in JSON"),
        ("moved.json", "new", "was imported into .*earlier already"),
        ("az://bucket/key", None, "az is not a service: use s3 or gs"),
        ("s3://bucket", None, "s3://bucket is not a URL like s3://BUCKET/KEY or gs://BUCKET/NAME"),
        ("s3://bucket/key", "new", "a bucket takes no TARGET: the journal lies below the object's own key"),
    ],
)
def test_wrong_paths_are_exit_code_2(file, tmp_path, monkeypatch, capsys, source, target, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "other.txt").write_bytes(b"photographs")
    open_folder(tmp_path / "broker").commit([Enqueue("1", b"message")])
    shutil.copy(file, tmp_path / "moved.json")
    main(["import", "moved.json", "earlier"])
    capsys.readouterr()
    assert main(["import", source] + ([target] if target else [])) == 2
    printed = capsys.readouterr()
    assert (printed.out, printed.err.count("\n")) == ("", 1)
    assert re.search(message, printed.err)
    assert decode(file.read_bytes()) == STATE


def test_disk_that_fails_is_exit_code_1(file, tmp_path, monkeypatch, capsys):
    def failing(*arguments):
        raise OSError("No space left on device")

    monkeypatch.setattr(os, "link", failing)
    assert main(["import", str(file), str(tmp_path / "new")]) == 1
    assert capsys.readouterr().err == "import: No space left on device\n"


def test_parents_of_the_target_are_made(file, tmp_path):
    assert main(["import", str(file), str(tmp_path / "a" / "b" / "journal")]) == 0
    assert main(["import", str(tmp_path / "a" / "b" / "journal"), str(tmp_path / "c" / "d" / "new.json")]) == 0
    assert found(tmp_path / "c" / "d" / "new.json") == EXPECTED


def test_object_in_a_bucket_becomes_a_journal_below_its_key(monkeypatch, capsys):
    objects, asked = MemoryObjects(), []
    monkeypatch.setattr(CloudObjects, "s3", lambda *place, **settings: asked.append((place, settings)) or objects)
    objects.create("queues/jobs.json", encode(STATE))
    for _ in range(2):
        assert main(["import", "s3://b/queues/jobs.json", "--endpoint-url", "http://minio:9000", "--region", "r"]) == 0
    assert asked[0] == (("b", ""), {"region": "r", "endpoint": "http://minio:9000"})
    assert capsys.readouterr().out.splitlines() == [
        "Imported 3 jobs from s3://b/queues/jobs.json into s3://b/queues/jobs.json/",
        "Imported the jobs, by an earlier call, from s3://b/queues/jobs.json into s3://b/queues/jobs.json/",
    ]
