"""Rows that the database makes from a query."""

from django.db.models import F

from ami.jobs.models import JobImage
from ami.jobs.models.states import ImageState
from ami.jobs.services.insert_select import insert_select
from ami.main.models import SourceImage
from tests.support.product.job_setup import World


def test_row_gets_what_is_given_and_every_other_field_its_default(world: World) -> None:
    [capture] = world.captures(1)
    job = world.job([])
    images = SourceImage.objects.filter(pk=capture.pk)
    assert insert_select(JobImage, images, job_id=job.pk, source_image_id=F("pk"), position=7) == 1
    made = JobImage.objects.filter(job=job).values().get()
    expected = JobImage.objects.create(job=world.job([]), source_image=capture, position=7)
    wanted = JobImage.objects.filter(pk=expected.pk).values().get()
    assert {**made, "id": 0, "job_id": 0} == {**wanted, "id": 0, "job_id": 0}


def test_existing_row_is_left_alone(world: World) -> None:
    captures = world.captures(2)
    job = world.job([])
    JobImage.objects.create(job=job, source_image=captures[0], state=ImageState.PROCESSED)
    assert insert_select(JobImage, SourceImage.objects.all(), job_id=job.pk, source_image_id=F("pk")) == 1
    states = JobImage.objects.filter(job=job).order_by("source_image").values_list("state", flat=True)
    assert list(states) == [ImageState.PROCESSED, ImageState.PENDING]


def test_empty_selection_inserts_nothing(world: World) -> None:
    images = SourceImage.objects.filter(pk__in=[])
    assert insert_select(JobImage, images, job_id=world.job([]).pk, source_image_id=F("pk")) == 0
