"""Factories of rows: projects, stations, captures, detections, occurrences."""

from datetime import UTC, datetime, timedelta
from itertools import count

from ami.main.models import (
    Classification,
    Deployment,
    Detection,
    Occurrence,
    Project,
    SourceImage,
    Taxon,
    User,
)
from ami.ml.models import Algorithm

NIGHT = datetime(2026, 6, 1, 22, 0, tzinfo=UTC)
_numbers = count(1)


class Turn:
    """A slice that is over after ``asks`` calls of `over`; by default never."""

    def __init__(self, asks: int | None = None) -> None:
        self.left = asks

    def over(self) -> bool:
        if self.left is None:
            return False
        self.left -= 1
        return self.left <= 0


def user(**fields) -> User:
    return User.objects.create_user(f"person{next(_numbers)}@example.org", "secret-word", **fields)


def project(**fields) -> Project:
    return Project.objects.create(**{"name": f"Project {next(_numbers)}", **fields})


def station(within: Project | None = None, **fields) -> Deployment:
    return Deployment.objects.create(project=within or project(), **{"name": f"Station {next(_numbers)}", **fields})


def capture(at: Deployment, timestamp: datetime | None = NIGHT, **fields) -> SourceImage:
    values = {"path": f"{next(_numbers)}.jpg", "size": 10, **fields}
    return SourceImage.objects.create(project=at.project, deployment=at, timestamp=timestamp, **values)


def captures(at: Deployment, number: int, every_minutes: int = 10) -> list[SourceImage]:
    return [capture(at, NIGHT + timedelta(minutes=every_minutes * index)) for index in range(number)]


def detector() -> Algorithm:
    return Algorithm.objects.get_or_create(key="box", defaults={"name": "Box", "task_type": "detection"})[0]


def classifier() -> Algorithm:
    return Algorithm.objects.get_or_create(key="name", defaults={"name": "Name", "task_type": "classification"})[0]


def taxon(name: str = "", **fields) -> Taxon:
    return Taxon.objects.create(name=name or f"Taxon {next(_numbers)}", **fields)


def detection(on: SourceImage, bbox: list[float] | None = None, **fields) -> Detection:
    box = bbox or [1.0, 2.0, 3.0 + next(_numbers), 9.0]
    return Detection.objects.create(source_image=on, detection_algorithm=detector(), bbox=box, **fields)


def null_marker(on: SourceImage) -> Detection:
    return Detection.objects.create(source_image=on, detection_algorithm=detector(), bbox=None)


def occurrence(on: SourceImage, called: Taxon | None = None, score: float | None = 0.9) -> Occurrence:
    box = detection(on)
    if called:
        Classification.objects.create(detection=box, algorithm=classifier(), taxon=called, score=score)
    return Occurrence.objects.create(
        detection=box,
        project_id=on.project_id,
        deployment_id=on.deployment_id,
        event_id=on.event_id,
        determination=called,
        determination_score=score if called else None,
    )
