"""Whether the demo succeeded: every rule that must hold, each with what was found."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from demo.evaluate import Score, score, total
from demo.truth import Manifest

if TYPE_CHECKING:
    from ami.main.models import Project

AT_LEAST = 0.9


@dataclass(frozen=True)
class Rule:
    """One rule, whether it holds, and the figures."""

    name: str
    holds: bool
    found: str


def rules(project: Project, job: dict[str, Any], dead: dict[str, int], manifest: Manifest | None) -> Iterator[Rule]:
    """Yield every rule of the demo."""
    from django.core.files.storage import default_storage

    from ami.jobs.models import JobImage
    from ami.main.models import Detection, Event, SourceImage

    yield Rule("the job succeeded", job["status"] == "SUCCESS", job["status"])
    images = JobImage.objects.filter(job_id=job["id"])
    unsettled = images.exclude(state__in=["processed", "failed"]).count()
    captures = SourceImage.objects.filter(project=project)
    yield Rule(
        "every image is settled", not unsettled and images.count() == captures.count(), f"{images.count()} images"
    )
    yield Rule(
        "no image failed", not images.filter(state="failed").exists(), f"{images.filter(state='failed').count()}"
    )
    real = Detection.objects.filter(source_image__project=project, bbox__isnull=False)
    paths = list(real.values_list("path", flat=True))
    missing = sum(1 for path in paths if not path or not default_storage.exists(path))
    yield Rule("every crop exists", not missing, f"{len(paths) - missing} of {len(paths)} crops")
    events = Event.objects.filter(project=project)
    counted = sum(events.values_list("captures_count", flat=True))
    yield Rule(
        "events have their counts", counted == captures.count(), f"{counted} captures in {events.count()} events"
    )
    yield Rule("nothing is dead-lettered", not any(dead.values()), f"{sum(dead.values())} letters")
    if manifest:
        found = accuracy(project, manifest)
        yield Rule("recall", found.recall >= AT_LEAST, f"{found.recall:.3f} of {found.true} true boxes")
        yield Rule("precision", found.precision >= AT_LEAST, f"{found.precision:.3f} of {found.found} boxes found")


def accuracy(project: Project, manifest: Manifest) -> Score:
    """Return the score of all detections of the main pipeline against the true boxes."""
    found = boxes_by_file(project)
    return total(score(true, found.get(path.name, [])) for path, true in manifest.boxes())


def boxes_by_file(project: Project) -> dict[str, list[tuple[float, float, float, float]]]:
    """Return every found box by the name of its picture's file."""
    from ami.main.models import Detection

    rows = Detection.objects.filter(source_image__project=project, bbox__isnull=False)
    boxes: dict[str, list[Any]] = {}
    for path, box in rows.values_list("source_image__path", "bbox"):
        boxes.setdefault(Path(path).name, []).append(tuple(box))
    return boxes
