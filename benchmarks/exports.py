"""``python -m benchmarks.exports``: rows per second of an export, beside COPY of the same columns.

Run it on a PostgreSQL that syncs its commits, and without a service for SQLite::

    python -m provision run --durable --need postgres -- python -m benchmarks.exports
    python -m benchmarks.exports

The reference on PostgreSQL is ``COPY (SELECT ...) TO STDOUT`` of the same columns as text, the best prediction by a
lateral join; on SQLite it is Django's iterator over the occurrences
with their related rows, without predictions. The export is written in its parts and joined, as by the
task. ``memory`` is what the process grew by while it wrote.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings.test")

if __name__ == "__main__":
    import django

    django.setup()

from django.db import connection

from benchmarks import frame
from benchmarks.frame import Figure

if TYPE_CHECKING:
    from ami.main.models import Project

FORMATS = ("occurrences_simple_csv", "occurrences_api_json")
TARGETS = {"postgresql": 0.3, "sqlite": 1.0}

COPY = """
COPY (
    SELECT o.id, o.event_id, e.group_by, o.deployment_id, d.name, o.project_id, p.name, o.determination_id, t.name,
           o.determination_score, best.taxon, best.algorithm, best.score, x.path, x.bbox, x.source_image_id,
           c.timestamp, c.path, c.public_base_url
    FROM main_occurrence o
    JOIN main_detection x ON x.id = o.detection_id JOIN main_sourceimage c ON c.id = x.source_image_id
    JOIN main_deployment d ON d.id = o.deployment_id JOIN main_project p ON p.id = o.project_id
    JOIN main_taxon t ON t.id = o.determination_id LEFT JOIN main_event e ON e.id = o.event_id
    LEFT JOIN LATERAL (
        SELECT f.name AS taxon, a.name AS algorithm, k.score
        FROM main_classification k JOIN main_taxon f ON f.id = k.taxon_id JOIN ml_algorithm a ON a.id = k.algorithm_id
        WHERE k.detection_id = o.detection_id ORDER BY k.terminal DESC, k.score DESC, k.id LIMIT 1
    ) best ON true
    WHERE o.project_id = {project} AND x.bbox IS NOT NULL ORDER BY o.id
) TO STDOUT WITH CSV
"""


def fill(rows: int) -> Project:
    """Return a project with so many occurrences, each with two classifications."""
    from ami.main.models import Classification, Detection, Event, Occurrence, SourceImage, Taxon
    from tests.support.product import factories

    station = factories.station()
    project = station.project
    night = factories.NIGHT
    event = Event.objects.create(project=project, deployment=station, group_by=night.date(), start=night, end=night)
    where = {"project": project, "deployment": station, "event": event}
    taxa = Taxon.objects.bulk_create(
        Taxon(name=f"Moth {number}", display_name=f"Moth {number}") for number in range(200)
    )
    algorithms = [factories.classifier(), factories.detector()]
    for first in range(0, rows, 5_000):
        numbers = range(first, min(first + 5_000, rows))
        captures = SourceImage.objects.bulk_create(
            SourceImage(**where, path=f"captures/{number}.jpg", timestamp=night) for number in numbers
        )
        detections = Detection.objects.bulk_create(
            Detection(
                source_image=capture,
                detection_algorithm=algorithms[1],
                bbox=[10.5, 20.25, 110.125, 220.0],
                path=f"crops/{number}.jpg",
                timestamp=night,
            )
            for number, capture in zip(numbers, captures, strict=True)
        )
        Classification.objects.bulk_create(
            Classification(
                detection=detection,
                algorithm=algorithm,
                taxon=taxa[(number + place) % len(taxa)],
                score=(number % 997) / 997 / (place + 1),
                terminal=place == 0,
            )
            for number, detection in zip(numbers, detections, strict=True)
            for place, algorithm in enumerate(algorithms)
        )
        Occurrence.objects.bulk_create(
            Occurrence(
                **where,
                detection=detection,
                determination=taxa[number % len(taxa)],
                determination_score=(number % 997) / 997,
            )
            for number, detection in zip(numbers, detections, strict=True)
        )
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("ANALYZE")
    return project


def write(project: Project, key: str) -> float:
    """Write an export whole; return the seconds."""
    from ami.exports.models import DataExport
    from ami.exports.services import writer
    from tests.support.product.factories import Turn

    export = DataExport.objects.create(project=project, format=key)
    began = time.perf_counter()
    assert writer.advance(export, Turn())
    return time.perf_counter() - began


def by_reference(project: Project) -> float:
    """Read the same columns as the reference does; return the seconds."""
    began = time.perf_counter()
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor, cursor.copy(COPY.format(project=project.pk)) as copy:
            for part in copy:
                len(part)
    else:
        from ami.exports.models import DataExport
        from ami.exports.services.filters import occurrences_of

        related = ("event", "deployment", "project", "determination", "detection__source_image")
        for occurrence in occurrences_of(DataExport(project=project)).select_related(*related).iterator():
            assert occurrence.detection.source_image.path
    return time.perf_counter() - began


def memory_mib() -> float:
    """Return the process's highest resident memory since it was reset."""
    [line] = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1]) / 1024


def measure(project: Project, key: str, rows: int, rounds: int) -> Iterator[Figure]:
    """Let export and reference take turns, after one turn that does not count."""
    write(project, key)
    by_reference(project)
    exports, references, grown = [], [], 0.0
    for _ in range(rounds):
        Path("/proc/self/clear_refs").write_text("5")
        before = memory_mib()
        exports.append(rows / write(project, key))
        grown = max(grown, memory_mib() - before)
        references.append(rows / by_reference(project))
    ours, other = statistics.median(exports), statistics.median(references)
    target = TARGETS[connection.vendor] if key == FORMATS[0] else None
    what, reference = f"export {rows:,} rows, {key}", "COPY" if connection.vendor == "postgresql" else "iterator"
    yield Figure(what, "rows/s", ours, reference, other, ours / other, at_least=target)
    yield Figure(f"{what}: memory grew by", "MiB", grown, "before", before, grown / before)


def figures(quick: bool) -> Iterator[Figure]:
    """Measure both formats in a test database and a folder of its own."""
    from django.conf import settings

    rows, rounds = (20_000, 3) if quick else (100_000, 5)
    with frame.test_database(), tempfile.TemporaryDirectory() as folder:
        settings.MEDIA_ROOT = folder
        project = fill(rows)
        for key in FORMATS:
            yield from measure(project, key, rows, rounds)


if __name__ == "__main__":
    raise SystemExit(frame.main("exports", __doc__, {"exports": figures}))
