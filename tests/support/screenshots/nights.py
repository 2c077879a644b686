"""Two nights of two stations: drawn captures with their detections, and a job that processes them."""

import random
from datetime import UTC, timedelta
from pathlib import Path

from django.db.models import F, Max
from django.utils import timezone

from ami.jobs.models import Job, JobImage
from ami.jobs.models.states import DispatchMode, ImageState, JobStatus
from ami.main.models import (
    Classification,
    Deployment,
    Detection,
    Event,
    Occurrence,
    Project,
    SourceImage,
    SourceImageCollection,
    Taxon,
)
from ami.ml.models import Algorithm, Pipeline
from ami.ml.services.crops import make_crops
from demo.ground_truth import DrawnFrame
from demo.renderer import draw_nights

SIZE = (1280, 720)
FRAMES = 24
#: Captures of the job without a picture of their own.
OTHERS = 5_976
TASK_ID = "3e5b7c1a-4d21-4f0e-9a3d-9c1b7f2e4a10"
STATIONS = ("Barro Colorado, canopy", "Barro Colorado, creek")


def add(media: Path, rng: random.Random) -> tuple[Job, SourceImage]:
    """Draw the captures, write all rows; return the running job and the capture that is shown."""
    project = Project.objects.create(name="Barro Colorado 2026")
    detector = Algorithm.objects.create(key="lit-sheet-detector", name="Lit-sheet detector", task_type="detection")
    classifier = Algorithm.objects.create(key="panama-moths", name="Panama moths", task_type="classification")
    pipeline = Pipeline.objects.create(name="Panama moths 2026", slug="panama-moths-2026")
    pipeline.algorithms.add(detector, classifier)
    stations = [Deployment.objects.create(project=project, name=name, time_zone="America/Panama") for name in STATIONS]
    others = _others(stations[1], project)
    manifest = draw_nights(media / "captures", nights=1, frames_per_night=FRAMES, size=SIZE, seed=11)
    event = Event.objects.create(
        project=project,
        deployment=stations[0],
        group_by=manifest.frames[0].taken_at.date(),
        start=manifest.frames[0].taken_at.replace(tzinfo=UTC),
    )
    captures = [_capture(frame, stations[0], event, (detector, classifier), rng) for frame in manifest.frames]
    make_crops([each.pk for each in captures])
    chosen = SourceImageCollection.objects.create(name="Night of 20 June, both stations", project=project)
    chosen.images.set([*captures, *others])
    job = _job(project, pipeline, chosen, others, captures)
    _earlier_jobs(project, pipeline, stations)
    return job, max(captures, key=lambda each: each.detections_count)


def refresh() -> None:
    """Let the last image of the running job have been settled just now."""
    images = JobImage.objects.exclude(settled_at=None)
    last = images.aggregate(last=Max("settled_at"))["last"]
    images.update(settled_at=F("settled_at") + (timezone.now() - last))


def _others(station: Deployment, project: Project) -> list[SourceImage]:
    begin = timezone.now() - timedelta(days=2)
    rows = [
        SourceImage(
            project=project,
            deployment=station,
            path=f"captures/station-2/{number:05d}.jpg",
            timestamp=begin + timedelta(seconds=5 * number),
            size=1_400_000,
            width=4096,
            height=2160,
        )
        for number in range(OTHERS)
    ]
    return SourceImage.objects.bulk_create(rows, batch_size=500)


def _capture(
    frame: DrawnFrame, station: Deployment, event: Event, algorithms: tuple[Algorithm, Algorithm], rng: random.Random
) -> SourceImage:
    capture = SourceImage.objects.create(
        project=station.project,
        deployment=station,
        event=event,
        path=f"captures/{frame.file}",
        timestamp=frame.taken_at.replace(tzinfo=UTC),
        width=SIZE[0],
        height=SIZE[1],
        size=184_000,
        detections_count=len(frame.moths),
    )
    for moth in frame.moths:
        taxon, _ = Taxon.objects.get_or_create(name=moth.species, defaults={"rank": "SPECIES"})
        found = Detection.objects.create(source_image=capture, detection_algorithm=algorithms[0], bbox=list(moth.box))
        score = round(rng.uniform(0.62, 0.99), 3)
        Classification.objects.create(detection=found, algorithm=algorithms[1], taxon=taxon, score=score)
        Occurrence.objects.create(
            detection=found,
            project=station.project,
            deployment=station,
            event=event,
            determination=taxon,
            determination_score=score,
        )
    return capture


def _job(
    project: Project,
    pipeline: Pipeline,
    chosen: SourceImageCollection,
    others: list[SourceImage],
    captures: list[SourceImage],
) -> Job:
    now = timezone.now()
    settled = int((len(others) + len(captures)) * 0.53)
    # Those with a picture were settled last.
    images = [*others[: settled - len(captures)], *captures, *others[settled - len(captures) :]]
    job = Job.objects.create(
        job_type_key="ml",
        project=project,
        name="Night of 20 June, both stations",
        pipeline=pipeline,
        source_image_collection=chosen,
        dispatch_mode=DispatchMode.ASYNC_API,
        task_id=TASK_ID,
        status=JobStatus.STARTED,
        total=len(images),
        done=len(images),
        collected_at=now - timedelta(minutes=6),
        started_at=now - timedelta(minutes=6),
        holder="",
    )
    rows = []
    for place, image in enumerate(images):
        is_settled = place < settled
        is_failed = is_settled and place % 290 == 17
        rows.append(
            JobImage(
                job=job,
                source_image=image,
                position=place,
                state=ImageState.FAILED
                if is_failed
                else ImageState.PROCESSED
                if is_settled
                else ImageState.PUBLISHED
                if place < settled + 700
                else ImageState.PENDING,
                attempts=1,
                settled_at=now - timedelta(seconds=(settled - place) / 9.2) if is_settled else None,
                error="404 Client Error: Not Found for the picture's URL"
                if is_failed and place % 580 != 17
                else "image file is truncated"
                if is_failed
                else "",
                detections_count=4 if is_settled and not is_failed else 0,
                classifications_count=4 if is_settled and not is_failed else 0,
            )
        )
    JobImage.objects.bulk_create(rows, batch_size=500)
    for level, line in (
        ("INFO", "Collecting 6,000 captures of the set 'Night of 20 June, both stations'."),
        ("INFO", "6,000 images collected, none processed before; publishing."),
        ("INFO", "Worker gpu-2 fetched 64 tasks."),
        ("WARNING", "3 images failed: 404 Client Error: Not Found for the picture's URL"),
        ("INFO", "Worker gpu-2 posted 64 results."),
    ):
        job.log(line, level=level)
    return job


def _earlier_jobs(project: Project, pipeline: Pipeline, stations: list[Deployment]) -> None:
    now = timezone.now()
    for number, (name, kind, status, hours) in enumerate(
        (
            ("Night of 19 June, both stations", "ml", JobStatus.SUCCESS, 26),
            ("Night of 18 June, creek", "ml", JobStatus.FAILURE, 50),
            ("Regroup sessions, creek", "regroup_events", JobStatus.SUCCESS, 51),
            ("Sync Barro Colorado, canopy", "data_storage_sync", JobStatus.REVOKED, 74),
        )
    ):
        counts = {"total": 5_200 + number, "unsettled": 0, "failed": 18 if status == JobStatus.SUCCESS else 2_900}
        Job.objects.create(
            name=name,
            project=project,
            job_type_key=kind,
            status=status,
            pipeline=pipeline if kind == "ml" else None,
            deployment=stations[1],
            image_counts=counts if kind == "ml" else None,
            collected_at=now - timedelta(hours=hours),
            started_at=now - timedelta(hours=hours),
            finished_at=now - timedelta(hours=hours - 1),
            task_id=f"{number}e5b7c1a-4d21-4f0e-9a3d-9c1b7f2e4a11",
        )
