"""Jobs and states as values, and their wire format."""

import base64
import json
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ami.jqueue.core.codec import decode, encode
from ami.jqueue.domain.models import Job, JobStatus, QueueState
from ami.transports.objectstore.storage.errors import JobNotFoundError, StorageError

NOON = datetime(2024, 1, 1, 12, tzinfo=UTC)

#: Bytes of the documents, with a payload whose base64 shows which alphabet it is in.
WIRE = b"""{
  "version": 3,
  "jobs": [
    {
      "id": "550e8400-e29b-41d4-a716-446655440000",
      "entrypoint": "send_email",
      "payload": "eyJ0byI6ICJ1c2VyQGV4YW1wbGUuY29tIn0=",
      "status": "queued",
      "priority": 0,
      "created_at": "2024-01-01T12:00:00+00:00",
      "heartbeat_at": null
    },
    {
      "id": "6ba7b810-9dad-11d1-80b4-00c04fd430c8",
      "entrypoint": "resize_image",
      "payload": "+/8=",
      "status": "in_progress",
      "priority": 5,
      "created_at": "2024-01-01T11:59:00+00:00",
      "heartbeat_at": "2024-01-01T12:00:45.500000+00:00"
    }
  ]
}"""

jobs = st.builds(
    Job,
    id=st.uuids().map(str),
    entrypoint=st.text(min_size=1, max_size=20),
    payload=st.binary(max_size=50),
    status=st.sampled_from(JobStatus),
    priority=st.integers(-(2**63), 2**63 - 1),
    created_at=st.datetimes(timezones=st.just(UTC)),
    heartbeat_at=st.none() | st.datetimes(timezones=st.just(UTC)),
)


def job(job_id="1", priority=0, minutes=0, **fields):
    created_at = NOON + timedelta(minutes=minutes)
    return Job(id=job_id, entrypoint="t", payload=b"", priority=priority, created_at=created_at, **fields)


def test_wire_format_is_the_documented_one():
    state = decode(WIRE)
    assert state.version == 3
    [email, image] = state.jobs
    assert (email.payload, email.status, email.heartbeat_at) == (b'{"to": "user@example.com"}', JobStatus.QUEUED, None)
    assert image.payload == b"\xfb\xff"
    assert image.heartbeat_at == datetime(2024, 1, 1, 12, 0, 45, 500_000, tzinfo=UTC)
    written = json.loads(encode(state))
    assert written == json.loads(WIRE)
    assert list(written["jobs"][0]) == list(json.loads(WIRE)["jobs"][0])
    assert encode(state).splitlines()[1] == b"""  "jobs": ["""


def test_both_alphabets_of_base64_are_read():
    for text in ("+/8=", "-_8="):
        content = json.dumps({"version": 0, "jobs": [{"id": "1", "entrypoint": "t", "payload": text}]})
        assert decode(content.encode()).jobs[0].payload == b"\xfb\xff"


def test_moments_of_any_zone_become_utc():
    zone = timezone(timedelta(hours=2))
    made = job(heartbeat_at=datetime(2024, 1, 1, 14, tzinfo=zone))
    assert made.heartbeat_at.tzinfo is UTC
    assert made.heartbeat_at == NOON
    without_zone = Job(entrypoint="t", payload=b"", created_at=datetime(2024, 1, 1, 12))  # noqa: DTZ001
    assert without_zone.created_at == NOON


def test_no_bytes_are_a_new_queue():
    assert decode(b"") == QueueState()


@pytest.mark.parametrize(
    "content", [b"x", b"[]", b'{"version":0,"jobs":[{"id":1}]}', b'{"version":0,"jobs":[', b"\xff"]
)
def test_anything_else_is_refused(content):
    with pytest.raises(StorageError, match="this is not a queue in JSON: "):
        decode(content)


def test_a_payload_that_is_not_base64_is_named():
    document = json.dumps({"version": 0, "jobs": [{"id": "1", "entrypoint": "t", "payload": "%"}]})
    with pytest.raises(StorageError, match=r"jobs\.0\.payload: .*not base64"):
        decode(document.encode())


@given(st.lists(jobs, max_size=5, unique_by=lambda job: job.id), st.integers(0))
def test_what_is_written_is_read_back(jobs, version):
    state = QueueState(jobs=tuple(jobs), version=version)
    assert decode(encode(state)) == state
    for found in json.loads(encode(state))["jobs"]:
        base64.b64decode(found["payload"], validate=True)


def test_queued_jobs_by_priority_then_age():
    state = QueueState(jobs=(job("a", 1), job("b", 0, 5), job("c", 0, 1), job("d", 0, status=JobStatus.DEAD)))
    assert [found.id for found in state.queued_jobs()] == ["c", "b", "a"]
    assert [found.id for found in state.next_jobs(2)] == ["c", "b"]
    assert state.queued_jobs("other") == ()


def test_changes_return_a_new_state():
    empty = QueueState()
    added = empty.with_job_added(job())
    assert (empty.jobs, added.version) == ((), 1)
    claimed = added.with_jobs_replaced([added.get("1").claimed(NOON)])
    assert [found.heartbeat_at for found in claimed.in_progress_jobs()] == [NOON]
    assert added.in_progress_jobs() == ()
    assert claimed.with_job_removed("1").jobs == ()
    assert claimed.with_job_removed("1").version == 3


def test_unknown_ids_are_not_found():
    assert QueueState().find("1") is None
    for call in (
        QueueState().get,
        QueueState().with_job_removed,
        lambda name: QueueState().with_job_replaced(job(name)),
    ):
        with pytest.raises(JobNotFoundError) as caught:
            call("1")
        assert caught.value.job_id == "1"


def test_new_job_waits_with_an_id_of_its_own():
    before = datetime.now(UTC)
    one, other = Job.new("t", b"x"), Job.new("t", b"x", priority=5)
    assert (one.entrypoint, one.payload, one.priority, one.status) == ("t", b"x", 0, JobStatus.QUEUED)
    assert (one.heartbeat_at, other.priority) == (None, 5)
    assert before <= one.created_at <= datetime.now(UTC)
    assert len({one.id, other.id, Job(entrypoint="t", payload=b"").id}) == 3


def test_status_and_heartbeat_change_a_copy():
    made = Job.new("t", b"x")
    working = made.with_status(status=JobStatus.IN_PROGRESS).with_heartbeat(ts=NOON)
    assert (working.id, working.status, working.heartbeat_at) == (made.id, JobStatus.IN_PROGRESS, NOON)
    assert working.with_heartbeat(None).heartbeat_at is None
    assert (made.status, made.heartbeat_at) == (JobStatus.QUEUED, None)


def test_one_job_is_replaced_and_the_others_stay():
    state = QueueState(jobs=(job("a"), job("b")), version=4)
    after = state.with_job_replaced(job("b", priority=9))
    assert [(found.id, found.priority) for found in after.jobs] == [("a", 0), ("b", 9)]
    assert (after.version, state.get("b").priority) == (5, 0)


def test_payload_as_a_string_is_base64():
    made = Job(entrypoint="t", payload="+/8=")
    assert made.payload == b"\xfb\xff"
    assert made.model_dump()["payload"] == "+/8="
    assert Job(**made.model_dump()) == made
    for wrong in (123, "no base64"):
        with pytest.raises(ValueError, match="payload"):
            Job(entrypoint="t", payload=wrong)


def test_only_stale_jobs_are_requeued():
    working = job("a", status=JobStatus.IN_PROGRESS, heartbeat_at=NOON)
    never_beat = job("b", status=JobStatus.IN_PROGRESS)
    state = QueueState(jobs=(working, never_beat), version=7)
    after = state.requeue_stale(NOON - timedelta(seconds=1))
    assert [found.status for found in after.jobs] == [JobStatus.IN_PROGRESS, JobStatus.QUEUED]
    assert after.requeue_stale(NOON - timedelta(seconds=1)) is after
    assert after.requeue_stale(NOON).get("a").heartbeat_at is None
