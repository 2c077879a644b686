"""Which claims a poll or a result extends, how often, and at what cost; NATS is unreachable."""

from datetime import datetime, timedelta
from types import SimpleNamespace

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from rest_framework.test import APIClient

from ami.jobs.api.pull_client import client_of
from ami.jobs.models import Job, JobImage
from ami.jobs.models.states import ImageState, JobStatus
from ami.jobs.services import claim_extension
from ami.jobs.services.transitions import move
from ami.main.models import ApiToken, SourceImage
from processing_service.puller import WorkerName
from tests.support.product.job_setup import World
from tests.support.product.result_messages import keep_result_messages

pytestmark = pytest.mark.sqlite

HOST = {"hostname": "gpu-1"}


@pytest.fixture(autouse=True)
def no_broker(settings, monkeypatch) -> None:
    settings.NATS_TASK_TTR, settings.NATS_MAX_EXTENSIONS = 300, 3
    keep_result_messages(monkeypatch)


def holds(world: World, names: dict[str, str], *, left: float = 100, images: int = 1, **fields) -> Job:
    """A job whose images the client with these names holds, with ``left`` seconds of their leases left."""
    start = SourceImage.objects.count()
    rows = [
        SourceImage(project=world.project, deployment=world.station, path=f"{n}.jpg", timestamp=timezone.now())
        for n in range(start, start + images)
    ]
    job = world.running(SourceImage.objects.bulk_create(rows))
    for row in JobImage.objects.filter(job=job):
        JobImage.objects.filter(pk=row.pk).update(reply_subject=f"$JS.ACK.job_{job.pk}.c.1.{row.pk}.1.0.0")
    lease = {"lease_expires_at": timezone.now() + timedelta(seconds=left), "claimed_by": key(world, names)}
    JobImage.objects.filter(job=job).update(**{"state": ImageState.CLAIMED, "attempts": 1, **lease, **fields})
    return job


def key(world: World, names: dict[str, str]) -> str:
    return client_of(SimpleNamespace(auth=None, user=world.user), names)


def poll(client: APIClient, job: Job, names: dict[str, str] = HOST) -> None:
    body = {"batch_size": 1, "client_info": names}
    answer = client.post(f"/api/v2/jobs/{job.pk}/tasks/", body, format="json")
    # As without claims: nothing can be fetched while NATS is unreachable.
    assert (answer.status_code, bool(answer["Retry-After"])) == (503, True)


def post(client: APIClient, job: Job, *subjects: str, names: dict[str, str] = HOST) -> None:
    items = [{"reply_subject": subject, "result": {"error": "x"}} for subject in subjects]
    body = {"results": items, "client_info": names}
    assert client.post(f"/api/v2/jobs/{job.pk}/result/", body, format="json").status_code == 200


def extensions(job: Job) -> list[int]:
    return list(JobImage.objects.filter(job=job).order_by("pk").values_list("extensions", flat=True))


def leases(job: Job) -> set[datetime]:
    return set(JobImage.objects.filter(job=job).values_list("lease_expires_at", flat=True))


def later(seconds: float) -> None:
    """Let the claims grow older."""
    for row in JobImage.objects.exclude(lease_expires_at=None):
        JobImage.objects.filter(pk=row.pk).update(lease_expires_at=row.lease_expires_at - timedelta(seconds=seconds))


def test_a_poll_extends_the_claims_of_the_client_for_this_job_only(world, client) -> None:
    job, other_job = holds(world, HOST, images=3), holds(world, HOST)
    another = holds(world, {"hostname": "gpu-2"})
    poll(client, job)
    poll(client, another)
    assert (extensions(job), extensions(other_job), extensions(another)) == ([1, 1, 1], [0], [0])
    [lease] = leases(job)
    assert 290 < (lease - timezone.now()).total_seconds() <= 300


def test_claims_are_extended_a_third_of_the_wait_apart_and_at_most_so_often(world, client) -> None:
    job = holds(world, HOST, left=299)
    reached = []
    for _ in range(12):
        poll(client, job)
        reached += extensions(job)
        later(60)
    assert reached == [0, 0, 1, 1, 2, 2, 3, 3, 3, 3, 3, 3]
    assert max(leases(job)) < timezone.now()


@pytest.mark.parametrize(
    "fields",
    [
        {"lease_expires_at": datetime(2026, 1, 1, tzinfo=timezone.get_default_timezone())},
        {"state": ImageState.PROCESSED},
        {"state": ImageState.FAILED},
        {"lease_expires_at": None},
        {"extensions": 3},
        {"claimed_by": ""},
    ],
    ids=lambda fields: "-".join(map(str, fields.values())),
)
def test_what_is_not_a_live_claim_is_not_extended(world, client, fields) -> None:
    job = holds(world, HOST, **fields)
    before = leases(job)
    poll(client, job)
    post(client, job, "x")
    assert leases(job) == before


def test_claims_of_a_stopped_job_are_not_extended(world, client) -> None:
    job = holds(world, HOST)
    assert move(job, JobStatus.FAILURE)
    post(client, job)
    assert extensions(job) == [0]


def test_nothing_is_extended_where_that_is_switched_off(settings, world, client) -> None:
    settings.NATS_MAX_EXTENSIONS = 0
    job = holds(world, HOST)
    poll(client, job)
    assert extensions(job) == [0]


def test_a_result_extends_the_claims_of_the_client_that_holds_its_delivery(world, client) -> None:
    job = holds(world, {}, images=2)
    foreign = holds(world, {"hostname": "gpu-2"})
    JobImage.objects.filter(job=foreign).update(job=job)
    subjects = list(JobImage.objects.filter(job=job).order_by("pk").values_list("reply_subject", flat=True))
    post(client, job, subjects[0], names=HOST)
    assert extensions(job) == [1, 1, 0]


def test_a_result_extends_no_claims_of_a_client_with_another_token(world, client) -> None:
    job = holds(world, HOST)
    JobImage.objects.filter(job=job).update(claimed_by="token-99-0123456789abcdef")
    post(client, job, *JobImage.objects.filter(job=job).values_list("reply_subject", flat=True))
    assert extensions(job) == [0]


def test_an_empty_post_of_results_extends_the_claims_of_the_client(world, client) -> None:
    job = holds(world, HOST, images=2)
    post(client, job)
    assert extensions(job) == [1, 1]


def test_a_client_without_names_is_its_token(world, client) -> None:
    job = holds(world, {})
    poll(client, job, {})
    assert extensions(job) == [1]


@pytest.mark.django_db
def test_tokens_and_names_tell_clients_apart_and_other_entries_do_not(world) -> None:
    tokens = [ApiToken.objects.create(digest=str(n), prefix=str(n), user=world.user) for n in range(2)]

    def of(token: ApiToken, **info) -> str:
        return client_of(SimpleNamespace(auth=token, user=world.user), info)

    same = {of(tokens[0], hostname="a", version=version, load=[1, {}]) for version in "12"}
    different = {of(tokens[0]), of(tokens[1]), of(tokens[0], pod_name="a"), of(tokens[0], worker_id="a"), *same}
    assert (len(same), len(different)) == (1, 5)
    odd = {of(tokens[0], hostname=value) for value in ("\x00", "é" * 1000, "\ud800", 10**5000, [], None)}
    assert all(text.isascii() and text.isprintable() and len(text) <= 64 for text in odd | different)


def test_statements_of_a_poll_do_not_grow_with_the_claims(world, client) -> None:
    counts = []
    for images in (1, 300):
        job = holds(world, HOST, images=images)
        with CaptureQueriesContext(
            connection,
        ) as asked:
            claim_extension.extend(job, claim_extension.due_claims(job, key(world, HOST)))
        assert set(extensions(job)) == {1}
        counts.append(len(asked))
        with CaptureQueriesContext(connection) as asked_again:
            assert claim_extension.extend(job, claim_extension.due_claims(job, key(world, HOST))) == 0
        assert len(asked_again) == 1
    assert counts[0] == counts[1] <= 5


def test_puller_that_left_a_task_is_another_client(world: World) -> None:
    request = SimpleNamespace(auth=None, user=world.user)
    name, other = WorkerName(), WorkerName()
    before = client_of(request, name.client_info())
    assert client_of(request, other.client_info()) == before
    name.renew()
    assert client_of(request, name.client_info()) != before
