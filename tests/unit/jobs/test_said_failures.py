"""What could not be processed is said: in the log, the progress, the list of images, and the admin."""

import pytest
from django.contrib.admin import site
from rest_framework.test import APIClient

from ami.jobs.admin import job_page
from ami.jobs.models import Job, JobImage, JobLog
from ami.jobs.models.states import ImageState
from ami.jobs.services import image_errors, ingest, job_completion, stored_results
from ami.jobs.services.audits.findings import Findings
from ami.jobs.services.audits.lost_images import _fail
from ami.jobs.services.image_settlement import settle_failed
from ami.jobs.services.progress import progress, progress_of
from ami.main.models import ApiToken, User
from ami.main.services import tokens
from tests.support.product.job_setup import World, new_world
from tests.support.product.results import handle_result

pytestmark = [pytest.mark.django_db, pytest.mark.sqlite]


def failed_job(world: World, *reasons: str, more: int = 0) -> Job:
    """A running job with an image for each reason, failed, and ``more`` processed ones."""
    captures = world.captures(len(reasons) + more)
    job = world.running(captures)
    for capture, reason in zip(captures, reasons, strict=False):
        settle_failed(job.pk, [capture.pk], reason)
    JobImage.objects.filter(job=job, state=ImageState.PUBLISHED).update(state=ImageState.PROCESSED)
    return job


def lines(job: Job, level: str | None = None) -> list[str]:
    rows = JobLog.objects.filter(job=job).order_by("pk")
    return list((rows.filter(level=level) if level else rows).values_list("message", flat=True))


def test_reason_of_nested_brackets_or_half_a_character_settles_its_image(world: World) -> None:
    brackets = ["[" * depth + '"token"' + "]" * depth for depth in (101, 450, 900, 5000)]
    job = failed_job(world, *brackets, "half a \ud800 and a \x00")
    assert set(JobImage.objects.filter(job=job).values_list("state", flat=True)) == {ImageState.FAILED}
    assert progress(job)["errors"]
    JobLog.append(job.pk, "half a \ud800 [" + brackets[1])
    assert lines(job)[-1].startswith("half a ? [")


def test_progress_names_each_reason_with_its_count(world: World) -> None:
    job = failed_job(world, "404 for http://a/1.jpg", "404 for http://a/2.jpg", "lost after 2 deliveries", more=1)
    errors = ["2 images failed: 404 for (link)", "1 image failed: lost after 2 deliveries"]
    assert progress(job)["errors"] == errors
    job.params["error"] = "it broke"
    assert progress(job)["errors"] == ["it broke", *errors]


def test_list_says_the_number_by_the_query_that_it_makes_anyway(world: World, django_assert_num_queries) -> None:
    jobs = [failed_job(world, "a", "b"), failed_job(world, "c"), failed_job(world, more=1)]
    with django_assert_num_queries(1):
        shown = progress_of(jobs)
    assert [shown[job.pk]["errors"] for job in jobs] == [["2 images failed."], ["1 image failed."], []]


def test_ended_job_keeps_its_reasons_for_lists(world: World, django_assert_num_queries) -> None:
    job = failed_job(world, "no picture", more=2)
    assert job_completion.complete_if_settled(job.pk)
    job.refresh_from_db()
    with django_assert_num_queries(0):
        assert progress_of([job])[job.pk]["errors"] == ["1 image failed: no picture"]
    assert job.status == "SUCCESS"
    assert lines(job, "WARNING") == [
        "Finished as SUCCESS: 2 of 3 images processed, 1 failed.\n1 image failed: no picture"
    ]


def test_late_result_of_a_lost_image_corrects_what_is_said(world: World) -> None:
    job = failed_job(world, "lost after 2 deliveries", "404", more=2)
    assert job_completion.complete_if_settled(job.pk)
    lost = JobImage.objects.filter(job=job, error__startswith="lost").get().source_image
    handle_result(job.pk, result=world.found(lost))
    job.refresh_from_db()
    assert JobImage.objects.filter(job=job, state=ImageState.FAILED).count() == 1
    assert progress_of([job])[job.pk]["errors"] == ["1 image failed: 404"]
    assert job.image_counts["captures"] == 3


def test_job_that_ended_before_reasons_were_stored(world: World) -> None:
    job = failed_job(world, "no picture")
    Job.objects.filter(pk=job.pk).update(image_counts={"total": 1, "failed": 1})
    job.refresh_from_db()
    assert progress_of([job])[job.pk]["errors"] == ["1 image failed."]
    assert progress(job)["errors"] == ["1 image failed: no picture"]


def test_many_reasons_are_bounded(world: World) -> None:
    job = failed_job(world, *(f"reason {number:02}" for number in range(14)))
    errors = progress(job)["errors"]
    assert len(errors) == image_errors.MOST_SENTENCES + 1
    assert errors[-1] == "4 images failed for other reasons."


def test_texts_beyond_the_bound_are_counted(world: World, monkeypatch) -> None:
    monkeypatch.setattr(image_errors, "MOST_GROUPS", 2)
    job = failed_job(world, "404 for http://a/1", "404 for http://a/2", "404 for http://a/3")
    assert progress(job)["errors"] == ["2 images failed: 404 for (link)", "1 image failed for other reasons."]


def test_batch_of_errors_writes_a_line_for_each_reason(world: World) -> None:
    captures = world.captures(4)
    job = world.running(captures)
    reasons = ["404", "404", "404", "it is broken"]
    rows = [
        stored_results.store(job, "", {"error": reason, "image_id": str(capture.pk)})
        for reason, capture in zip(reasons, captures, strict=True)
    ]
    ingest.handle_batch(job.pk, [row.pk for row in rows])
    assert lines(job, "ERROR")[:2] == ["3 images failed: 404", f"Image {captures[3].pk} failed: it is broken"]
    named = JobLog.objects.get(job=job, message__startswith="3 images").context
    assert named == {"source_image_ids": [capture.pk for capture in captures[:3]]}


def test_lines_of_one_batch_are_bounded(world: World) -> None:
    job = world.running([])
    image_errors.log_failures(job, [(number, f"reason {number:02}") for number in range(14)])
    assert len(lines(job)) == image_errors.MOST_SENTENCES + 1
    assert lines(job)[-1] == "4 images failed for other reasons."


def test_lost_images_are_named_in_the_log(world: World) -> None:
    captures = world.captures(2)
    job = world.running(captures)
    _fail(job.pk, dict.fromkeys((capture.pk for capture in captures), 2), Findings())
    assert "2 images failed: lost after 2 deliveries" in lines(job, "WARNING")


def client_of(user: User) -> APIClient:
    client = APIClient()
    client.force_authenticate(user)
    return client


def test_list_of_images_shows_what_failed_and_why(world: World) -> None:
    job = failed_job(world, "no picture", "lost after 2 deliveries", more=2)
    answer = client_of(world.user).get(f"/api/v2/jobs/{job.pk}/images/?state=failed").json()
    assert answer["count"] == 2
    assert {row["error"] for row in answer["results"]} == {"no picture", "lost after 2 deliveries"}
    assert set(answer["results"][0]) == {"id", "source_image", "state", "attempts", "error", "settled_at"}
    assert client_of(world.user).get(f"/api/v2/jobs/{job.pk}/images/").json()["count"] == 4


def test_pages_of_images_follow_a_cursor(world: World) -> None:
    job = failed_job(world, "a", "b", "c", "d", "e")
    path, seen = f"/api/v2/jobs/{job.pk}/images/?state=failed&limit=2&cursor=", []
    while path:
        answer = client_of(world.user).get(path).json()
        seen += [row["source_image"] for row in answer["results"]]
        path = answer["next"]
    assert sorted(seen) == sorted(JobImage.objects.filter(job=job).values_list("source_image", flat=True))


def test_images_are_shown_as_the_job_is(world: World) -> None:
    job = failed_job(world, "a")
    path = f"/api/v2/jobs/{job.pk}/images/"
    assert client_of(new_world("other").user).get(path).status_code == 404
    assert APIClient().get(path).status_code in (401, 403)
    wrong = client_of(world.user).get(f"{path}?state=lost")
    assert (wrong.status_code, list(wrong.json())) == (400, ["state"])
    key = tokens.issue(world.user, scope=ApiToken.Scope.WORKER, projects=[world.project])[1]
    assert APIClient(headers={"authorization": f"Token {key}"}).get(path).status_code == 403


def test_admin_shows_failed_images_without_a_query(world: World, django_assert_num_queries) -> None:
    job = failed_job(world, "no picture", more=2)
    admin = site._registry[Job]
    assert admin.failed(job) == ""
    job_completion.complete_if_settled(job.pk)
    job.refresh_from_db()
    with django_assert_num_queries(0):
        assert admin.failed(job) == "1"
        assert job_page.figures(job)["errors"] == ["1 image failed: no picture"]
