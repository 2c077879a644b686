"""Sets up the demo's project: a user, a project, and one station per folder of captures."""

from __future__ import annotations

import io
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from django.core.management import call_command

if TYPE_CHECKING:
    from ami.main.models import Deployment, Project, User

TIME_ZONE = "America/New_York"
PIPELINE = "sheet-moths"
NAME = "Demo"

#: Intervals in seconds: beat's own are minutes to an hour, and the demo takes about a minute.
QUICK_TICKS = {
    "ami.ml.tasks.check_processing_services_online": 10,
    "ami.jobs.tasks.audit_jobs": 10,
    "ami.jobs.tasks.audit_data_integrity": 15,
}


@dataclass(frozen=True)
class DemoProject:
    """The demo's rows; ``password`` is random in each run and never stored; empty for an owner that was given."""

    owner: User
    password: str
    project: Project
    stations: tuple[Deployment, ...]


def migrate(*, is_quick: bool = True) -> None:
    """Create the tables, the queues and the schedule, as a deployment does; with ``is_quick`` beat ticks more often."""
    call_command("migrate", verbosity=0)
    call_command("queues", "declare", "--json", stdout=io.StringIO())
    call_command("queues", "schedule", "--json", stdout=io.StringIO())
    if is_quick:
        _quicken()


def create(folders: list[Path], media: Path, owner: User | None = None) -> DemoProject:
    """Create the project with a station per folder below ``media``; a sync job registers the captures.

    Without an ``owner`` it makes one.

    They are in Antenna's own storage, so processing services fetch them by signed links.
    """
    from ami.main.models import Deployment, Project, S3StorageSource, User

    password = "" if owner else secrets.token_urlsafe(16)
    if owner is None:
        email = f"demo-{secrets.token_hex(3)}@antenna.example"
        owner = User.objects.create_superuser(email=email, password=password)
    project = Project.objects.create(name=NAME, owner=owner)
    source = S3StorageSource.objects.create(
        name="Demo captures",
        project=project,
        endpoint_url=media.resolve().as_uri(),
    )
    stations = tuple(
        Deployment.objects.create(
            name=folder.name,
            project=project,
            data_source=source,
            data_source_subdir=folder.relative_to(media).as_posix(),
            time_zone=TIME_ZONE,
        )
        for folder in folders
    )
    return DemoProject(owner, password, project, stations)


def _quicken() -> None:
    from django_celery_beat.models import IntervalSchedule, PeriodicTask, PeriodicTasks

    for task, seconds in QUICK_TICKS.items():
        interval, _ = IntervalSchedule.objects.get_or_create(every=seconds, period="seconds")
        PeriodicTask.objects.filter(task=task).update(interval=interval, expire_seconds=seconds - 1)
    # update() sends no signal: make a running beat reload its schedule.
    PeriodicTasks.update_changed()
