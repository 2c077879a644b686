"""The audits that need no NATS."""

from datetime import timedelta

import pytest
from django.core.files.storage import storages
from django.utils import timezone

from ami.admission.models import Call
from ami.jobs import retention
from ami.jobs.models import Job, JobImage, StoredResult
from ami.jobs.models.states import ImageState, JobStatus
from ami.jobs.services import audits, ingest, operations, result_batches, stored_results
from ami.jobs.services.audits import stalled_jobs
from ami.jobs.services.transitions import move
from ami.main.models import Detection, Occurrence
from tests.support.product.job_setup import World
from tests.support.product.results import handle_result

pytestmark = pytest.mark.sqlite


@pytest.fixture
def published(monkeypatch) -> list[dict[str, object]]:
    messages: list[dict[str, object]] = []
    for name in ("run_job", "process_nats_pipeline_result", "process_nats_pipeline_results"):
        monkeypatch.setattr(f"ami.jobs.tasks.{name}.apply_async", lambda kwargs, **_: messages.append(kwargs))
    monkeypatch.setattr("ami.jobs.services.job_results.publish_crops", lambda images: None)
    return messages


def test_unhandled_result_is_republished_at_growing_intervals(
    world: World, published, django_capture_on_commit_callbacks
) -> None:
    [capture] = world.captures(1)
    row = stored_results.store(world.running([capture]), "r", world.found(capture))

    def audit_after(minutes: int) -> int:
        now = timezone.now()
        published_at = StoredResult.objects.get().published_at
        StoredResult.objects.update(
            created_at=now - timedelta(hours=1), published_at=published_at and now - timedelta(minutes=minutes)
        )
        with django_capture_on_commit_callbacks(execute=True):
            return audits.audit_stored_results()["published_again"]

    assert audit_after(6) == 1
    assert audit_after(1) == 0
    assert audit_after(6) == 1
    assert audit_after(6) == 0
    assert audit_after(11) == 1
    assert [message["result_ids"] for message in published] == [[row.pk]] * 3


def test_what_has_a_call_is_not_published_again_however_deep_the_queue(world: World) -> None:
    jobs = [world.job([]) for _ in range(2)]
    for job in jobs:
        operations.run(job)
    captures = world.captures(2)
    for capture in captures:
        result_batches.publish([stored_results.store(world.running([capture]), "r", world.found(capture))])
    long_ago = timezone.now() - timedelta(hours=1)
    Job.objects.update(queued_at=long_ago)
    StoredResult.objects.update(created_at=long_ago, published_at=long_ago)
    assert stalled_jobs.republish_unstarted_jobs().as_dict() == {"checked": 0, "fixed": 0, "unfixable": 0}
    assert audits.audit_stored_results()["published_again"] == 0

    jobs[0].refresh_from_db()
    purged = [jobs[0].task_id, StoredResult.objects.order_by("pk")[0].batch_id]
    assert Call.objects.filter(task_id__in=purged).delete()[0] == 2
    assert stalled_jobs.republish_unstarted_jobs().as_dict() == {"checked": 1, "fixed": 1, "unfixable": 0}
    assert audits.audit_stored_results()["published_again"] == 1
    assert Call.objects.count() == 4
    Job.objects.update(queued_at=long_ago)
    assert stalled_jobs.republish_unstarted_jobs().checked == 0, "the call that was published again waits"


def test_buried_result_is_neither_republished_nor_purged_and_handled_one_is(
    world: World, published, monkeypatch
) -> None:
    monkeypatch.setattr("ami.jobs.services.result_bodies.MOST_ROW_BYTES", 0)
    captures = world.captures(2)
    job = world.running(captures)
    buried, handled = (stored_results.store(job, "r", world.found(c)) for c in captures)
    stored_results.mark_failed("x", key=buried.key)
    ingest.handle(job.pk, result_key=handled.key)
    old = timezone.now() - timedelta(days=2)
    StoredResult.objects.update(created_at=old)
    StoredResult.objects.exclude(handled_at=None).update(handled_at=old)
    assert audits.audit_stored_results() == {"published_again": 0}
    assert retention.results() == 1
    assert not storages["results"].exists(handled.name)
    assert storages["results"].exists(buried.name)


def test_incident_41_job_with_all_images_settled_is_finished(world: World) -> None:
    job = world.running(world.captures(2))
    JobImage.objects.update(state=ImageState.PROCESSED)
    assert audits.audit_jobs()["complete_jobs"] == {"checked": 1, "fixed": 1, "unfixable": 0}
    job.refresh_from_db()
    assert job.status == JobStatus.SUCCESS


def test_incident_41_lost_images_fail_even_without_nats(settings, world: World) -> None:
    job = world.running(world.captures(3))
    rows = list(JobImage.objects.order_by("pk"))
    JobImage.objects.update(state=ImageState.PROCESSED)
    JobImage.objects.filter(pk=rows[0].pk).update(
        state=ImageState.CLAIMED,
        attempts=settings.NATS_MAX_DELIVER,
        lease_expires_at=timezone.now() - timedelta(minutes=2),
    )
    found = audits.health_check()
    assert set(found) == {"lost_images", "stale_jobs", "running_job_snapshots", "zombie_streams"}
    assert found["lost_images"]["fixed"] == 1
    job.refresh_from_db()
    assert job.status == JobStatus.SUCCESS


def test_an_image_whose_result_waits_on_ingest_is_not_lost(settings, world: World) -> None:
    [capture] = world.captures(1)
    job = world.running([capture])
    JobImage.objects.update(
        state=ImageState.CLAIMED,
        attempts=settings.NATS_MAX_DELIVER,
        reply_subject="r",
        lease_expires_at=timezone.now() - timedelta(minutes=2),
    )
    stored_results.store(job, "r", world.found(capture))
    assert audits.audit_jobs()["lost_images"]["fixed"] == 0


def test_failing_check_does_not_stop_the_others(world: World, monkeypatch) -> None:
    job = world.job([])
    Job.objects.filter(pk=job.pk).update(status=JobStatus.CANCELING)

    def broken():
        raise ZeroDivisionError

    monkeypatch.setattr("ami.jobs.services.audits.health.fail_lost_images", broken)
    found = audits.audit_jobs()
    assert found["lost_images"]["unfixable"] == 1
    assert found["cancelled_jobs"]["fixed"] == 1


def test_incident_47_broken_rows_are_counted(world: World, published) -> None:

    [capture] = world.captures(1)
    job = world.running([capture])
    handle_result(job.pk, result=world.found(capture))
    assert sum(audits.audit_data_integrity().values()) == 1  # the crop, which is not made here
    Occurrence.objects.update(determination=None)
    assert audits.audit_data_integrity()["occurrences_without_determination"] == 1
    assert move(job, JobStatus.STARTED) is False


def test_integrity_is_audited_in_parts_and_each_run_continues_the_last(world: World, monkeypatch) -> None:
    from ami.jobs.services.audits import data_integrity
    from ami.telemetry.models import AuditPosition

    monkeypatch.setattr(data_integrity, "LEAST_KEYS", 4)
    monkeypatch.setattr(data_integrity, "RUNS_PER_PASS", 10**6)  # Keys go on where other tests have ended.
    monkeypatch.setattr(data_integrity, "KEYS_PER_STATEMENT", 2)
    for capture in world.captures(10):
        Detection.objects.create(source_image=capture, bbox=[1, 2, 3, 4], detection_algorithm=world.detector)
    first = Detection.objects.order_by("pk").values_list("pk", flat=True)[0]
    AuditPosition.objects.create(name="detections_without_crop", last_key=first - 1)
    found = [audits.audit_data_integrity()["detections_without_crop"] for _ in range(3)]
    assert found == [4, 4, 2]
    position = AuditPosition.objects.get(name="detections_without_crop")
    assert (position.last_key, position.found, position.found_by_last_pass) == (0, 0, 10)
    assert position.pass_ended_at is not None


def test_integrity_audit_ends_in_time_and_keeps_its_position(world: World, monkeypatch) -> None:
    from ami.jobs.services.audits import data_integrity
    from ami.telemetry.models import AuditPosition

    monkeypatch.setattr(data_integrity, "RUN_SECONDS", -1)
    [capture] = world.captures(1)
    Detection.objects.create(source_image=capture, bbox=[1, 2, 3, 4], detection_algorithm=world.detector)
    assert audits.audit_data_integrity()["detections_without_crop"] == 0
    assert AuditPosition.objects.get(name="detections_without_crop").pass_ended_at is None


def test_large_table_is_audited_within_three_days_of_hourly_runs(world: World, monkeypatch) -> None:
    from ami.jobs.services.audits import data_integrity
    from ami.telemetry.models import AuditPosition

    monkeypatch.setattr(data_integrity, "LEAST_KEYS", 1)
    Detection.objects.create(
        pk=7_200_000, source_image=world.captures(1)[0], bbox=[1, 2, 3, 4], detection_algorithm=world.detector
    )
    audits.audit_data_integrity()
    assert AuditPosition.objects.get(name="detections_without_crop").last_key == 100_000
