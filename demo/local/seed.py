"""The data of the local Antenna: a login, drawn captures, and a job to run. Import after `django.setup()`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import httpx
from django.core.management.base import CommandError

from ami.jobs.models import Job
from ami.main.models import ApiToken, Project, User
from ami.main.services import tokens
from ami.topology.process_group import ProcessGroup
from demo import project as demo_project
from demo.client import Client
from demo.ground_truth import TRUTH_FILE
from demo.local import parts
from demo.local.login import Login
from demo.local.output import Output
from demo.local.place import LocalPlace, NotUsable
from demo.renderer import draw_nights, station_name
from provision.patience import processor_seconds

SEED = 7
FOLDER = "captures"
TOKEN = "local puller"  # noqa: S105 - its name
ML = "ml"
FINAL = ("SUCCESS", "FAILURE", "REVOKED")


@dataclass(frozen=True)
class Seeded:
    """The project, its stations, and the token of the service that works for it."""

    project_id: int
    station_ids: tuple[int, ...]
    token: str = field(repr=False)


def prepare(login: Login) -> None:
    """Create or migrate the tables, declare the queues and the schedule, and make the login."""
    try:
        demo_project.migrate(is_quick=False)
    except CommandError as error:
        raise NotUsable(str(error)) from error
    user = User.objects.filter(email=login.email).first()
    if user is None:
        User.objects.create_superuser(email=login.email, password=login.password)
    elif not user.check_password(login.password):
        user.set_password(login.password)
        user.save()


def project(place: LocalPlace, login: Login) -> Seeded:
    """Return the project, made in the first run, with a new token for the processing service."""
    owner = User.objects.get(email=login.email)
    found = Project.objects.filter(owner=owner, name=demo_project.NAME).first()
    if found is None:
        folder = place.media / FOLDER / station_name(1)
        folder.mkdir(parents=True, exist_ok=True)
        found = demo_project.create([folder], place.media, owner).project
    ApiToken.objects.filter(user=owner, name=TOKEN).revoke()
    _, token = tokens.issue(owner, name=TOKEN, scope=ApiToken.Scope.WORKER, projects=[found])
    return Seeded(found.pk, tuple(found.deployments.values_list("pk", flat=True)), token)


def draw(place: LocalPlace, frames: int, group: ProcessGroup, output: Output) -> None:
    """Draw the captures, unless they are there."""
    target = place.media / FOLDER
    if not (target / TRUTH_FILE).exists():
        manifest = draw_nights(target, frames_per_night=frames, seed=SEED, progress=lambda *_: shown(group))
        output.say(f"{len(manifest.frames)} captures drawn")


def shown(group: ProcessGroup) -> None:
    """Print what has come meanwhile."""
    group.step(0)


def has_job(seeded: Seeded) -> bool:
    """Return whether there is a job to run: a first run may have been ended before it made one."""
    return Job.objects.filter(project_id=seeded.project_id, job_type_key=ML).exists()


def job(client: Client, seeded: Seeded, group: ProcessGroup, output: Output) -> int:
    """Synchronise the captures, and return a job over all of them that waits for its button.

    Raises:
        PartFailed: a process stays down, or nothing moved any more.
    """

    def until(what: str, condition: Callable[[], Any], *jobs: int) -> Any:
        def signs() -> object:
            shown = [(row.get("status"), row.get("progress")) for row in map(read, jobs)]
            return shown, processor_seconds() // parts.WORK_SECONDS

        return parts.until(group, output, what, condition, signs)

    def got(path: str, **params: int) -> dict[str, Any]:
        try:
            return dict(client.get(path, **params))
        except httpx.TransportError:  # Web may be started again.
            return {}

    def read(number: int) -> dict[str, Any]:
        return got(f"jobs/{number}/")

    def is_done(number: int) -> bool:
        return read(number).get("status") in FINAL

    def pipeline() -> int | None:
        found = got("ml/pipelines/", limit=100, project=seeded.project_id).get("results", [])
        return next((row["id"] for row in found if row["slug"] == demo_project.PIPELINE), None)

    synced = [client.post(f"deployments/{station}/sync/")["job_id"] for station in seeded.station_ids]
    until("the captures to be synchronised", lambda: all(is_done(each) for each in synced), *synced)
    wanted = {"name": "All captures", "project": seeded.project_id, "method": "full"}
    collection = client.post("captures/collections/", wanted)
    populated = client.post(f"captures/collections/{collection['id']}/populate/")["job_id"]
    until("the collection to be populated", lambda: is_done(populated), populated)
    pipeline_id = until("the processing service to register its pipelines", pipeline)
    output.say("captures synchronised; a job waits for its button")
    body = {
        "name": "All captures",
        "project": seeded.project_id,
        "job_type_key": ML,
        "pipeline": pipeline_id,
        "source_image_collection": collection["id"],
    }
    return int(client.post("jobs/", body)["id"])
