"""The demo's checks: each passes or fails, with the measured value."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from demo.evaluate import Score, score, total
from demo.ground_truth import Manifest

if TYPE_CHECKING:
    from ami.main.models import Project

AT_LEAST = 0.9


@dataclass(frozen=True)
class Check:
    """The result of one check; ``found`` is the measured value as text."""

    name: str
    passed: bool
    found: str


def run(project: Project, job: dict[str, Any], dead: dict[str, int], manifest: Manifest | None) -> Iterator[Check]:
    """Yield the result of every check. ``dead``: dead letters by queue; recall and precision need a ``manifest``."""
    from django.core.files.storage import default_storage

    from ami.jobs.models import JobImage
    from ami.main.models import Detection, Event, SourceImage

    yield Check("the job succeeded", job["status"] == "SUCCESS", job["status"])
    images = JobImage.objects.filter(job_id=job["id"])
    unsettled = images.exclude(state__in=["processed", "failed"]).count()
    captures = SourceImage.objects.filter(project=project)
    yield Check(
        "every image is settled", not unsettled and images.count() == captures.count(), f"{images.count()} images"
    )
    yield Check(
        "no image failed", not images.filter(state="failed").exists(), f"{images.filter(state='failed').count()}"
    )
    real = Detection.objects.filter(source_image__project=project, bbox__isnull=False)
    paths = list(real.values_list("path", flat=True))
    missing = sum(1 for path in paths if not path or not default_storage.exists(path))
    yield Check("every crop exists", not missing, f"{len(paths) - missing} of {len(paths)} crops")
    events = Event.objects.filter(project=project)
    counted = sum(events.values_list("captures_count", flat=True))
    yield Check(
        "events have their counts", counted == captures.count(), f"{counted} captures in {events.count()} events"
    )
    yield Check("nothing is dead-lettered", not any(dead.values()), f"{sum(dead.values())} letters")
    if manifest:
        found = accuracy(project, manifest)
        yield Check("recall", found.recall >= AT_LEAST, f"{found.recall:.3f} of {found.true} true boxes")
        yield Check("precision", found.precision >= AT_LEAST, f"{found.precision:.3f} of {found.found} boxes found")


def accuracy(project: Project, manifest: Manifest) -> Score:
    """Return the score of all detections of the main pipeline against the true boxes."""
    found = boxes_by_file(project)
    return total(score(true, found.get(path.name, [])) for path, true in manifest.boxes())


def boxes_by_file(project: Project) -> dict[str, list[tuple[float, float, float, float]]]:
    """Return the found boxes by their picture's file name."""
    from ami.main.models import Detection

    rows = Detection.objects.filter(source_image__project=project, bbox__isnull=False)
    boxes: dict[str, list[Any]] = {}
    for path, box in rows.values_list("source_image__path", "bbox"):
        boxes.setdefault(Path(path).name, []).append(tuple(box))
    return boxes
