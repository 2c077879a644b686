"""Capture sets of many captures without pictures, made in large statements."""

from datetime import UTC, datetime, timedelta

from ami.jobs.models import Job
from ami.jobs.models.states import DispatchMode, JobStatus
from ami.jobs.services import operations
from ami.jobs.services.transitions import move
from ami.main.models import SourceImage, SourceImageCollection
from tests.support.product.job_setup import World

#: Few at a time: memory that making the set frees would hide what collecting it takes.
AT_ONCE = 1000
NIGHT = datetime(2026, 6, 1, 22, tzinfo=UTC)


def plain_captures(
    world: World, count: int, *, folder: str = "", first: int = 0, begin: datetime = NIGHT
) -> list[SourceImage]:
    """Make ``count`` captures of the world's station without pictures, numbered from ``first``, a second apart."""
    return SourceImage.objects.bulk_create(
        SourceImage(
            project=world.project,
            deployment=world.station,
            path=f"{folder}{number}.jpg",
            timestamp=begin + timedelta(seconds=number),
        )
        for number in range(first, first + count)
    )


def capture_set(world: World, captures: int) -> SourceImageCollection:
    """A capture set of ``captures`` captures, among other captures of the same station."""
    made = SourceImageCollection.objects.create(name="all", project=world.project)
    for start in range(0, captures, AT_ONCE):
        rows = plain_captures(world, min(AT_ONCE, captures - start), first=start)
        link = SourceImageCollection.images.through
        link.objects.bulk_create(link(sourceimagecollection=made, sourceimage=row) for row in rows)
        # Their keys leave gaps between those of the set.
        SourceImage.objects.bulk_create(
            SourceImage(project=world.project, deployment=world.station, path=f"not-{start}-{number}.jpg")
            for number in range(10)
        )
    return made


def job_of(world: World, captures: SourceImageCollection, **fields: object) -> Job:
    """A started job over a capture set, nothing of it collected."""
    job = operations.create(
        "ml",
        world.project,
        name="large",
        pipeline=world.pipeline,
        dispatch_mode=DispatchMode.ASYNC_API,
        source_image_collection=captures,
        **fields,
    )
    assert move(job, JobStatus.STARTED)
    return job
