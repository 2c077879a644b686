"""The setup of job tests: a project, a station, captures with real pictures, a pipeline."""

import io
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from django.core.files.base import ContentFile
from django.core.files.storage import default_storage
from django.utils import timezone
from PIL import Image

from ami.jobs.models import Job, JobImage
from ami.jobs.models.states import DispatchMode, ImageState, JobStatus
from ami.jobs.services import job_slice, operations
from ami.jobs.services.expected_results import keep_names
from ami.jobs.services.transitions import move
from ami.main.models import Deployment, Project, SourceImage, User
from ami.ml.models import Algorithm, AlgorithmCategoryMap, Pipeline, ProjectPipelineConfig

SIZE = (200, 120)


@dataclass
class Now:
    """A slice of work that is over after ``steps`` steps; by default never."""

    steps: int = 10**9
    asked: int = field(default=0)

    def over(self) -> bool:
        self.asked += 1
        return self.asked >= self.steps


@dataclass
class World:
    user: User
    project: Project
    station: Deployment
    pipeline: Pipeline
    detector: Algorithm
    classifier: Algorithm

    def captures(self, number: int) -> list[SourceImage]:
        made = []
        have = SourceImage.objects.filter(deployment=self.station).count()
        for index in range(have, have + number):
            path = f"captures/{self.station.pk}/{index}.jpg"
            buffer = io.BytesIO()
            Image.new("RGB", SIZE, (index % 250, 80, 120)).save(buffer, "JPEG")
            if default_storage.exists(path):
                default_storage.delete(path)
            default_storage.save(path, ContentFile(buffer.getvalue()))
            made.append(
                SourceImage.objects.create(
                    project=self.project,
                    deployment=self.station,
                    path=path,
                    timestamp=datetime(2026, 6, 1, 22, tzinfo=UTC) + timedelta(minutes=index),
                )
            )
        return made

    def job(self, captures: list[SourceImage], mode: str = DispatchMode.ASYNC_API, **fields: Any) -> Job:
        params = {"source_image_ids": [capture.pk for capture in captures]}
        return operations.create(
            "ml", self.project, name="test", params=params, pipeline=self.pipeline, dispatch_mode=mode, **fields
        )

    def running(self, captures: list[SourceImage], **fields: Any) -> Job:
        """A job with all images published, as by run_job."""
        job = self.job(captures, **fields)
        move(job, JobStatus.STARTED)
        keep_names(job)
        rows = [
            JobImage(job=job, source_image=c, state=ImageState.PUBLISHED, published_at=timezone.now()) for c in captures
        ]
        JobImage.objects.bulk_create(rows)
        job.collected_at = timezone.now()
        job.save(update_fields=["collected_at"])
        return job

    def claim(self, job: Job, owner: str = "someone") -> Job:
        assert job_slice.claim(job, owner)
        return job

    def found(
        self, *captures: SourceImage, boxes: int = 1, label: str = "Noctua pronuba", score: float = 0.9
    ) -> dict[str, Any]:
        """A result with ``boxes`` detections on each capture."""
        detections = [
            {
                "source_image_id": str(capture.pk),
                "bbox": {"x1": 10 + 20 * n, "y1": 10, "x2": 40 + 20 * n, "y2": 50},
                "timestamp": "2026-06-01T22:00:00",
                "algorithm": {"name": self.detector.name, "key": self.detector.key},
                "classifications": [
                    {
                        "classification": label,
                        "labels": [label, "other"],
                        "scores": [score, 1 - score],
                        "algorithm": {"name": self.classifier.name, "key": self.classifier.key},
                        "terminal": True,
                        "timestamp": "2026-06-01T22:00:00",
                    }
                ],
            }
            for capture in captures
            for n in range(boxes)
        ]
        return {
            "pipeline": self.pipeline.slug,
            "total_time": 0.02,
            "source_images": [{"id": str(c.pk), "url": "http://example.org/x.jpg"} for c in captures],
            "detections": detections,
        }


def new_world(name: str = "world", *, own: bool = True) -> World:
    """Return a project that uses one pipeline: its own, or one of the shared catalogue."""
    user = User.objects.create_user(f"{name}@example.org")
    project = Project.objects.create(name=name, owner=user)
    station = Deployment.objects.create(name="station", project=project, time_zone="America/New_York")
    labels = ["Noctua pronuba", "other"]
    category_map = AlgorithmCategoryMap.objects.create(
        project=project if own else None,
        labels=labels,
        data=[{"index": i, "label": label, "taxon_rank": "SPECIES"} for i, label in enumerate(labels)],
    )
    whose = category_map.project
    detector = Algorithm.objects.create(project=whose, name=f"Det {name}", key=f"det-{name}", task_type="detection")
    classifier = Algorithm.objects.create(
        project=whose, name=f"Cls {name}", key=f"cls-{name}", task_type="classification", category_map=category_map
    )
    pipeline = Pipeline.objects.create(project=whose, name=f"Pipe {name}", slug=f"pipe-{name}")
    pipeline.algorithms.set([detector, classifier])
    ProjectPipelineConfig.objects.create(pipeline=pipeline, project=project)
    return World(user, project, station, pipeline, detector, classifier)
