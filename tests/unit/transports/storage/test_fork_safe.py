"""A process that was forked from one that had asked a bucket asks it all the same."""

import json
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ami.transports.objectstore.storage import fork_safe
from ami.transports.objectstore.storage.cloud import CloudObjects
from ami.transports.objectstore.storage.errors import StorageError
from ami.transports.objectstore.storage.fork_safe import SubprocessStorage
from tests.support.place import until
from tests.support.transports.recording_server import Answer, Recorder, recording
from tests.support.transports.signals import interrupting

pytestmark = pytest.mark.processes

ROOT = Path(__file__).parents[4]

CHILDREN = """
import json, os, sys
from ami.transports.objectstore.storage.errors import CASConflictError
from ami.transports.objectstore.storage import fork_safe
from ami.transports.objectstore.storage.cloud import CloudObjects

place = json.loads(sys.argv[1])
storage = CloudObjects.s3(**place)
if sys.argv[2] == "billiard":
    import billiard

def in_child(work):
    if sys.argv[2] == "billiard":
        child = billiard.Process(target=work)
        child.start()
        child.join()
        return child.exitcode
    child = os.fork()
    if child == 0:
        work()
        sys.exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

def work():
    stored = storage.read("a")
    assert stored.content == b"parent"
    version = storage.replace("a", b"child", stored.version)
    # One that the parent never opened.
    assert CloudObjects.s3(**{**place, "timeout_seconds": 61.0}).read("a").version == version
    for write in (lambda: storage.create("a", b""), lambda: storage.replace("a", b"", stored.version)):
        try:
            write()
        except CASConflictError as error:
            assert "'a'" in str(error)
        else:
            raise AssertionError("no conflict")
    storage.create("b/c", bytes(1_000_000))
    assert storage.list("b") == ["b/c"]
    assert len(storage.read("b/c").content) == 1_000_000
    storage.delete("b/c")
    assert storage.read("b/c") is None
    try:
        storage.read("..")
    except ValueError:
        pass
    else:
        raise AssertionError("no ValueError")
    assert in_child(grandchild) == 0

def grandchild():
    storage.replace("a", b"grandchild", storage.read("a").version)

storage.create("a", b"parent")
assert in_child(work) == 0
assert storage.read("a").content == b"grandchild"
assert fork_safe._process is None
print("done")
"""


@pytest.fixture
def place(s3: dict[str, Any], request: pytest.FixtureRequest) -> dict[str, Any]:
    return {**s3, "prefix": f"{s3['prefix']}/{request.node.name}-{uuid.uuid4().hex}"}


@pytest.mark.parametrize("how", ["fork", "billiard"])
def test_a_forked_child_asks_like_its_parent(place: dict[str, Any], how: str):
    ran = subprocess.run(
        [sys.executable, "-c", CHILDREN, json.dumps(place), how], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "done\n", "")


ASK_AND_WAIT = """
import json, sys
from ami.transports.objectstore.storage import fork_safe
from ami.transports.objectstore.storage.fork_safe import SubprocessStorage
from ami.transports.objectstore.storage.cloud import CloudObjects

SubprocessStorage(CloudObjects.s3(**json.loads(sys.argv[1])).place).read("a")
print(fork_safe._process._popen.pid, flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM, None])
def test_the_other_process_ends_with_its_owner(place: dict[str, Any], end: signal.Signals | None):
    owner = subprocess.Popen(
        [sys.executable, "-c", ASK_AND_WAIT, json.dumps(place)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    other = int(owner.stdout.readline())
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        os.kill(other, number)
    assert is_there(other)
    if end:
        owner.send_signal(end)
    owner.communicate()
    until(lambda: not is_there(other), 60, "the other process ends with its owner")


def is_there(pid: int) -> bool:
    """Whether the process runs; one that only waits to be reaped does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


# Trouble with the other process, seen from the owner.


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    """A server of this test's own: the other process may still ask it when the test is over."""
    with recording() as recorder:
        yield recorder


@pytest.fixture
def storage(recorder: Recorder) -> SubprocessStorage:
    recorder.answer = Answer(headers={"ETag": '"tag"', "Last-Modified": "Wed, 21 Oct 2015 07:28:00 GMT"}, body=b"1")
    return SubprocessStorage(
        CloudObjects.s3(
            "bucket", endpoint=recorder.url, timeout_seconds=60.0, access_key_id="id", secret_access_key="HIDDEN-secret"
        ).place
    )


def test_after_a_death_of_the_subprocess_the_next_request_starts_another(
    storage: SubprocessStorage, recorder: Recorder
):
    assert storage.read("a").content == b"1"
    killed = fork_safe._process._popen
    os.kill(killed.pid, signal.SIGKILL)
    os.waitid(os.P_PID, killed.pid, os.WEXITED | os.WNOWAIT)
    assert storage.read("a").content == b"1"
    assert fork_safe._process._popen.pid != killed.pid


def test_a_request_that_is_under_way_fails_with_the_other_process(storage: SubprocessStorage, recorder: Recorder):
    storage.read("a")
    recorder.take()
    recorder.answer = None

    def kill(number: int, frame: object) -> None:
        os.kill(fork_safe._process._popen.pid, signal.SIGKILL)

    with interrupting(kill, lambda: recorder.requests), pytest.raises(StorageError, match="cannot read 'a' in s3://"):
        storage.read("a")


def test_the_answer_to_an_interrupted_request_is_not_taken_for_another(storage: SubprocessStorage, recorder: Recorder):
    storage.read("a")
    recorder.take()
    recorder.answer = None

    class TimeLimit(Exception):
        pass

    def interrupt(number: int, frame: object) -> None:
        raise TimeLimit

    with interrupting(interrupt, lambda: recorder.requests), pytest.raises(TimeLimit):
        storage.read("a")
    recorder.answer = Answer(headers={"ETag": '"other"', "Last-Modified": "Wed, 21 Oct 2015 07:28:00 GMT"}, body=b"2")
    assert storage.read("b").content == b"2"


def test_an_error_comes_through_with_its_cause_and_no_credential(storage: SubprocessStorage, recorder: Recorder):
    recorder.answer = Answer(403, body=b"<Error><Code>AccessDenied</Code></Error>HIDDEN")
    with pytest.raises(
        StorageError, match=r"cannot create 'a' in s3://bucket/: 403 Forbidden \(AccessDenied\)"
    ) as raised:
        storage.create("a", b"")
    assert "403" in str(raised.value.cause)
    assert "HIDDEN" not in repr(vars(raised.value))
