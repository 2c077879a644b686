"""Sets of many captures in a test database, and jobs over them, for the benchmarks of collect and dispatch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.db import connection
from django.db.models import F, Value
from django.db.models.functions import Concat, Now

if TYPE_CHECKING:
    from ami.jobs.models import Job
    from tests.support.product.job_setup import World

#: Captures of the first statement; each further one doubles them.
FIRST = 1000


def captures(world: World, count: int) -> None:
    """Make ``count`` captures of the world's station, without pictures, and a capture set of all of them."""
    from ami.jobs.services.insert_select import insert_select
    from ami.main.models import SourceImage, SourceImageCollection

    link = SourceImageCollection.images.through
    made = SourceImage.objects.bulk_create(
        SourceImage(
            project=world.project,
            deployment=world.station,
            path=f"station/2026/{number}.jpg",
            public_base_url="http://example.org/pictures",
        )
        for number in range(min(FIRST, count))
    )
    have, turn = len(made), 0
    while have < count:
        turn += 1
        values: dict[str, Any] = {
            "project_id": world.project.pk,
            "deployment_id": world.station.pk,
            "path": Concat(Value(f"{turn}-"), F("path")),
            "public_base_url": F("public_base_url"),
            "created_at": Now(),
            "updated_at": Now(),
        }
        source = SourceImage.objects.filter(pk__in=SourceImage.objects.order_by("pk").values("pk")[: count - have])
        have += insert_select(SourceImage, source, **values)
    chosen = SourceImageCollection.objects.create(name="all", project=world.project)
    insert_select(link, SourceImage.objects.all(), sourceimagecollection_id=chosen.pk, sourceimage_id=F("pk"))
    analyze()


def analyze() -> None:
    """Let PostgreSQL look at its tables, as its own daemon does."""
    with connection.cursor() as cursor:
        cursor.execute("VACUUM ANALYZE" if connection.vendor == "postgresql" else "ANALYZE")


def forget_images() -> None:
    """Remove the images of all jobs, so that each round begins with an empty table."""
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute("TRUNCATE jobs_jobimage")
        else:
            cursor.execute("DELETE FROM jobs_jobimage")


def started_job(world: World, **fields: Any) -> Job:
    """Return a started job over all captures, nothing of it collected."""
    from ami.main.models import SourceImageCollection
    from tests.support.product.large_sets import job_of

    return job_of(world, SourceImageCollection.objects.get(), **fields)
