"""A job's page: its figures, which reload by themselves, and the buttons run, retry and cancel."""

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from ami.jobs.models import Job, JobImage
from ami.jobs.models.states import ImageState, JobStatus
from ami.jobs.services.running_jobs import running_jobs
from ami.main.models import SourceImage
from ami.queues.models import AuditEntry
from tests.support.product import admin_rows, factories

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def ml_job():
    station = factories.station()
    job = Job.objects.create(
        project=station.project, job_type_key="ml", name="Night", status=JobStatus.STARTED, collected_at=timezone.now()
    )
    states = [ImageState.PROCESSED] * 6 + [ImageState.FAILED] * 2 + [ImageState.PENDING] * 4
    for image, state in zip(factories.captures(station, len(states)), states, strict=True):
        is_settled = state in (ImageState.PROCESSED, ImageState.FAILED)
        JobImage.objects.create(
            job=job,
            source_image=image,
            state=state,
            error="no such file" if state == ImageState.FAILED else "",
            settled_at=timezone.now() if is_settled else None,
        )
    return job


def page(job):
    return reverse("admin:jobs_job_change", args=[job.pk])


def test_page_shows_stages_pace_and_failures(browser, ml_job):
    text = browser.get(page(ml_job)).content.decode()
    assert "66.67%" not in text
    assert "67%" in text
    assert "0.1 images per second" in text
    assert "about 30 s left" in text
    assert "2 images failed: no such file" in text
    assert f"q={ml_job.pk}&amp;state__exact=failed" in text


def test_figures_are_304_until_they_change(browser, ml_job):
    address = reverse("admin:jobs_job_figures", args=[ml_job.pk])
    with CaptureQueriesContext(connection) as asked:
        first = browser.get(address)
    assert first.status_code == 200
    assert len(asked) <= 10
    again = browser.get(address, headers={"If-None-Match": first.headers["ETag"]})
    assert (again.status_code, again.content) == (304, b"")
    JobImage.objects.filter(job=ml_job, state=ImageState.PENDING).update(state=ImageState.PROCESSED)
    assert browser.get(address, headers={"If-None-Match": first.headers["ETag"]}).status_code == 200


def test_cancel_asks_for_the_reason_and_records_it(browser, ml_job):
    address = reverse("admin:jobs_job_press", args=[ml_job.pk, "cancel"])
    assert address in browser.get(page(ml_job)).content.decode()
    assert "Reason" in browser.get(address).content.decode()
    ml_job.refresh_from_db()
    assert ml_job.status == JobStatus.STARTED
    assert browser.post(address, {"why": "wrong night"}).headers["Location"] == page(ml_job)
    ml_job.refresh_from_db()
    assert ml_job.status in (JobStatus.CANCELING, JobStatus.REVOKED)
    entry = AuditEntry.objects.get(verb="cancel job")
    assert (entry.why, entry.target) == ("wrong night", f"jobs.Job {ml_job.pk}")


def test_page_shows_the_captures_that_were_processed_last(browser, reader, ml_job):
    rows = list(JobImage.objects.filter(job=ml_job, state=ImageState.PROCESSED)[:3])
    for row, box in zip(rows, ([10, 20, 60, 70], [1, 2, 3, 4], None), strict=True):
        SourceImage.objects.filter(pk=row.source_image_id).update(width=800, height=600)
        JobImage.objects.filter(pk=row.pk).update(detections_count=1 if box else 0)
        if box:
            factories.detection(row.source_image, box)
    SourceImage.objects.filter(pk=rows[1].source_image_id).update(public_base_url="https://pictures.example/")
    for client in (browser, reader):
        text = client.get(page(ml_job)).content.decode()
        assert reverse("admin:main_sourceimage_thumbnail", args=[rows[0].source_image_id]) in text
        assert '<rect class="capture-box" x="10.0" y="20.0" width="50.0" height="50.0">' in text
        assert text.count("/thumbnail/") == 1


def test_overview_has_the_pace_of_running_jobs(ml_job):
    with CaptureQueriesContext(connection) as asked:
        [shown] = running_jobs()
    assert (shown.failed_images, round(shown.images_per_second, 2), shown.left_seconds) == (2, 0.13, 30.0)
    assert len(asked) <= 3


def test_finished_job_can_be_retried_and_not_cancelled(browser):
    job = admin_rows.failed_job()
    text = browser.get(page(job)).content.decode()
    assert reverse("admin:jobs_job_press", args=[job.pk, "retry"]) in text
    assert reverse("admin:jobs_job_press", args=[job.pk, "cancel"]) not in text


def test_viewer_has_no_buttons_and_is_refused(reader, ml_job):
    text = reader.get(page(ml_job)).content.decode()
    assert "job-figures" in text
    assert "job-verb" not in text
    for verb in ("run", "retry", "cancel"):
        assert reader.post(reverse("admin:jobs_job_press", args=[ml_job.pk, verb])).status_code == 403


def test_unknown_verb_and_unknown_job_are_404(browser, ml_job):
    assert browser.post(reverse("admin:jobs_job_press", args=[ml_job.pk, "explode"])).status_code == 404
    assert browser.get(reverse("admin:jobs_job_figures", args=[0])).status_code == 404


def test_list_has_a_bar_for_each_job(browser, ml_job):
    text = browser.get(reverse("admin:jobs_job_changelist")).content.decode()
    assert '<progress max="1"' in text
