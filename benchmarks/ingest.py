"""``python -m benchmarks.ingest``: results saved in batches, beside row-by-row saving and COPY of the same rows.

Run it on a PostgreSQL that syncs its commits::

    python -m provision run --durable --need postgres -- python -m benchmarks.ingest

Each contender starts with empty tables in each round and saves the same results; the figure is the median of its
rounds. "Row by row" starts from the same stored results and leaves the same rows and marks, with get, get_or_create,
update_or_create and save for each row, and one transaction for each result. "COPY" copies rows with ready keys into
the same three tables, one transaction for each batch; it looks up and settles nothing.
"""

from __future__ import annotations

import json
import os
import statistics
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings.test")

if __name__ == "__main__":
    import django

    django.setup()

from django.db import connection, transaction
from django.utils import timezone

from benchmarks import frame
from benchmarks.frame import Figure

if TYPE_CHECKING:
    from ami.jobs.models import Job, StoredResult
    from tests.support.product.job_setup import World

SHAPES = ((1, 3), (5, 3), (5, 1000))
BATCHES = (8, 40)
NAIVE_TARGETS = {(1, 3): 5.0, (5, 3): 9.0, (5, 1000): 4.5}
COPY_TARGETS = {3: 0.15, 1000: 0.4}
TABLES = ("main_classification", "main_occurrence", "main_detection", "admission_call", "jobs_storedresult")
WHEN = "2026-06-01T22:00:00"


def item(world: World, capture: int, boxes: int, classes: int) -> bytes:
    """Return one posted result as JSON, with scores and logits of 17 digits each."""
    scores = [(7919 * (n + capture) % 104_729) / 104_729 for n in range(1, classes + 1)]
    classification = {
        "classification": f"Moth {capture % classes}",
        "scores": scores,
        "logits": [20 * score - 10 for score in scores],
        "algorithm": {"name": world.classifier.name, "key": world.classifier.key},
        "timestamp": WHEN,
    }
    detections = [
        {
            "source_image_id": str(capture),
            "bbox": {"x1": 10 + 20 * n, "y1": 10, "x2": 40 + 20 * n, "y2": 50},
            "timestamp": WHEN,
            "algorithm": {"name": world.detector.name, "key": world.detector.key},
            "classifications": [classification],
        }
        for n in range(boxes)
    ]
    result = {
        "pipeline": world.pipeline.slug,
        "total_time": 0.02,
        "source_images": [{"id": str(capture), "url": "http://example.org/x.jpg"}],
        "detections": detections,
    }
    return json.dumps({"reply_subject": f"r{capture}", "result": result}).encode()


class Stage:
    """A project with captures in sessions, whose results are saved again and again in empty tables."""

    def __init__(self, results: int) -> None:
        from ami.main.models import Event, SourceImage
        from tests.support.product.job_setup import new_world

        self.world = world = new_world("ingest")
        start = datetime(2026, 6, 1, 22, tzinfo=UTC)
        where = {"project": world.project, "deployment": world.station}
        event = Event.objects.create(**where, group_by=start.date(), start=start, end=start + timedelta(hours=8))
        self.captures = SourceImage.objects.bulk_create(
            SourceImage(
                **where,
                event=event,
                path=f"captures/{n}.jpg",
                timestamp=start + timedelta(seconds=n),
            )
            for n in range(results)
        )

    def job(self) -> Job:
        """Return a new job over all captures, in tables without results."""
        with connection.cursor() as cursor:
            cursor.execute(f"TRUNCATE {', '.join(TABLES)} CASCADE")
        return self.world.running(self.captures)

    def texts(self, boxes: int, classes: int, results: int) -> list[bytes]:
        """Return one result for each of the first captures."""
        return [item(self.world, capture.pk, boxes, classes) for capture in self.captures[:results]]


def in_batches(texts: list[bytes], stage: Stage, batch: int) -> float:
    """Save stored results as the task does; return the seconds."""
    from ami.jobs.services import ingest

    job = stage.job()
    keys = [row.pk for row in _stored(job, texts)]
    began = time.perf_counter()
    for first in range(0, len(keys), batch):
        ingest.handle_batch(job.pk, keys[first : first + batch])
    return time.perf_counter() - began


def _stored(job: Job, texts: list[bytes]) -> list[StoredResult]:
    """Store results that the API has validated."""
    from ami.jobs.services import stored_results

    items = [(f"r{n}", text) for n, text in enumerate(texts)]
    return stored_results.store_many(job, items)


def row_by_row(texts: list[bytes], stage: Stage, batch: int) -> float:  # noqa: ARG001
    """Save stored results one after the other with the ORM; return the seconds."""
    job = stage.job()
    keys = [row.key for row in _stored(job, texts)]
    began = time.perf_counter()
    for key in keys:
        with transaction.atomic():
            _save_naively(job.pk, key)
    return time.perf_counter() - began


def _save_naively(job_id: int, key: str) -> None:
    """Do what the product does, row by row: the same rows and marks, one object after the other."""
    from ami.jobs.models import Job, JobImage, StoredResult
    from ami.jobs.services import stored_results
    from ami.main.services.stale_marks import mark_stale
    from ami.ml.models import Pipeline

    job, row = Job.objects.get(pk=job_id), StoredResult.objects.get(key=key)
    result = json.loads(bytes(stored_results.load(row)))["result"]
    Pipeline.objects.get(slug=result["pipeline"])
    for picture in result["source_images"]:
        image = JobImage.objects.select_related("source_image__deployment").get(job=job, source_image=picture["id"])
        found = [each for each in result["detections"] if each["source_image_id"] == picture["id"]]
        image.classifications_count = sum(_save_detection(job_id, image.source_image, each) for each in found)
        image.detections_count = len(found)
        image.state, image.settled_at = "processed", timezone.now()
        image.save()
        mark_stale("event", [image.source_image.event_id])
        mark_stale("deployment", [image.source_image.deployment_id])
    row.handled_at = timezone.now()
    row.save()
    if not JobImage.objects.filter(job=job).unsettled().exists():
        Job.objects.filter(pk=job_id).update(status="SUCCESS")


def _save_detection(job_id: int, capture: Any, found: dict[str, Any]) -> int:
    """Save a detection with its classifications and its occurrence; return the number of classifications."""
    from ami.main.models import Classification, Detection, Identification, Occurrence, Taxon
    from ami.main.services.boxes import bbox_key
    from ami.main.services.times import station_time
    from ami.ml.models import Algorithm

    box = list(found["bbox"].values())
    when = station_time(datetime.fromisoformat(found["timestamp"]), capture.deployment)
    detection, _ = Detection.objects.get_or_create(
        source_image=capture,
        detection_algorithm=Algorithm.objects.get(key=found["algorithm"]["key"]),
        bbox_key=bbox_key(box),
        defaults={"bbox": box, "timestamp": capture.timestamp, "detection_time": when},
    )
    for each in found["classifications"]:
        taxon, _ = Taxon.objects.get_or_create(name=each["classification"])
        taxon.projects.add(capture.project_id)
        algorithm = Algorithm.objects.get(key=each["algorithm"]["key"])
        values = {name: each[name] for name in ("scores", "logits")}
        values |= {"score": max(each["scores"]), "taxon": taxon, "timestamp": when}
        values["category_map_id"] = algorithm.category_map_id
        key = {"detection": detection, "algorithm": algorithm}
        Classification.objects.filter(**key, is_current=True).exclude(job_id=job_id).update(is_current=False)
        Classification.objects.update_or_create(**key, job_id=job_id, defaults=values)
    place = {"project_id": capture.project_id, "deployment_id": capture.deployment_id, "event_id": capture.event_id}
    occurrence, _ = Occurrence.objects.get_or_create(detection=detection, defaults=place)
    best = detection.classifications.current().filter(taxon__isnull=False).order_by("-terminal", "-score").first()
    if best and not Identification.objects.filter(occurrence=occurrence, withdrawn=False).exists():
        occurrence.determination_id, occurrence.determination_score = best.taxon_id, best.score
        occurrence.save()
    return len(found["classifications"])


def by_copy(texts: list[bytes], stage: Stage, batch: int) -> float:
    """COPY the rows of the results with ready keys; return the seconds, building the rows not counted."""
    from ami.main.models import Classification, Detection, Occurrence

    job = stage.job()
    keys = iter(range(10**12, 10**13))
    rows = [_rows(stage, job.pk, json.loads(text)["result"], keys) for text in texts]
    began = time.perf_counter()
    for first in range(0, len(rows), batch):
        with transaction.atomic():
            for kind, model in enumerate((Detection, Classification, Occurrence)):
                _copy(model, [row for result in rows[first : first + batch] for row in result[kind]])
    return time.perf_counter() - began


def _rows(
    stage: Stage, job_id: int, result: dict[str, Any], keys: Iterator[int]
) -> tuple[list[Any], list[Any], list[Any]]:
    from ami.main.models import Classification, Detection, Occurrence
    from ami.main.services.boxes import bbox_key

    world, now = stage.world, timezone.now()
    made: tuple[list[Any], list[Any], list[Any]] = ([], [], [])
    event = stage.captures[0].event_id
    for found in result["detections"]:
        box, key = list(found["bbox"].values()), next(keys)
        image = int(found["source_image_id"])
        own = {"pk": key, "created_at": now, "updated_at": now}
        detection = {"source_image_id": image, "detection_algorithm": world.detector, "timestamp": now}
        made[0].append(Detection(**own, **detection, bbox=box, bbox_key=bbox_key(box), detection_time=now))
        [each] = found["classifications"]
        classified = {"algorithm": world.classifier, "category_map": world.classifier.category_map, "timestamp": now}
        values = {"score": max(each["scores"]), "scores": each["scores"], "logits": each["logits"]}
        made[1].append(Classification(**own, **classified, **values, detection_id=key, job_id=job_id))
        where = {"project": world.project, "deployment": world.station, "event_id": event}
        made[2].append(Occurrence(**own, **where, detection_id=key, determination_score=values["score"]))
    return made


def _copy(model: type[Any], rows: list[Any]) -> None:
    fields = model._meta.concrete_fields
    columns = ", ".join(connection.ops.quote_name(field.column) for field in fields)
    with connection.cursor() as cursor, cursor.copy(f"COPY {model._meta.db_table} ({columns}) FROM STDIN") as copy:
        for row in rows:
            copy.write_row([field.get_db_prep_save(getattr(row, field.attname), connection) for field in fields])


def compare(stage: Stage, boxes: int, classes: int, batch: int, results: int, rounds: int) -> Iterator[Figure]:
    """Let the contenders take turns."""
    contenders: dict[str, Callable[[list[bytes], Stage, int], float]] = {
        "batches": in_batches,
        "naive": row_by_row,
        "copy": by_copy,
    }
    texts = stage.texts(boxes, classes, results)
    rates: dict[str, list[float]] = {name: [] for name in contenders}
    in_batches(texts[:batch], stage, batch)
    for _ in range(rounds):
        for name, run in contenders.items():
            part = texts if name != "naive" else texts[: max(len(texts) // 4, 8)]
            rates[name].append(len(part) / run(part, stage, batch))
    rate = {name: statistics.median(each) for name, each in rates.items()}
    targets = {"naive": NAIVE_TARGETS[boxes, classes], "copy": COPY_TARGETS[classes]}
    for name, reference in (("naive", "row by row"), ("copy", "COPY")):
        what, ratio = f"save {boxes} x {classes}, batch of {batch}", rate["batches"] / rate[name]
        target = targets[name] if batch == BATCHES[0] else None
        yield Figure(what, "results/s", rate["batches"], reference, rate[name], ratio, at_least=target)


def figures(quick: bool) -> Iterator[Figure]:
    """Measure all shapes in a test database."""
    from django.conf import settings

    from ami.jobs.services import job_results

    if connection.vendor != "postgresql":
        raise SystemExit("This benchmark needs PostgreSQL: set DATABASE_URL, or run it through `provision run`.")
    settings.NATS_URL = ""
    job_results.publish_crops = lambda _: None
    rounds, few, many = (3, 80, 80) if quick else (7, 400, 160)
    with frame.test_database():
        stage = Stage(few)
        for boxes, classes in SHAPES:
            for batch in BATCHES:
                yield from compare(stage, boxes, classes, batch, few if classes < 100 else many, rounds)


if __name__ == "__main__":
    raise SystemExit(frame.main("ingest", __doc__, {"saving": figures}))
