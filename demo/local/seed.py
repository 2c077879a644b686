"""The data of the local Antenna: a login, drawn captures, and a job to run. Import after `django.setup()`."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ami.main.models import Project, User
from demo import project as demo_project
from demo.client import Client
from demo.local.login import Login
from demo.local.place import LocalPlace
from demo.local.supervisor import PartFailed, Supervisor
from demo.renderer import draw_nights

SEED = 7
WAIT_SECONDS, POLL_SECONDS = 180.0, 0.5
FINAL = ("SUCCESS", "FAILURE", "REVOKED")


@dataclass(frozen=True)
class Seeded:
    """``station_ids`` are to be synchronised where the project ``is_new``."""

    project_id: int
    station_ids: tuple[int, ...]
    is_new: bool


def prepare(login: Login) -> None:
    """Create or migrate the tables, declare the queues and the schedule, and make the login."""
    demo_project.migrate(is_quick=False)
    user = User.objects.filter(email=login.email).first()
    if user is None:
        User.objects.create_superuser(email=login.email, password=login.password)
    elif not user.check_password(login.password):
        user.set_password(login.password)
        user.save()


def project(place: LocalPlace, login: Login, frames: int, say: Callable[[str], None]) -> Seeded:
    """Return the project; in the first run draw its captures."""
    owner = User.objects.get(email=login.email)
    if found := Project.objects.filter(owner=owner, name=demo_project.NAME).first():
        return Seeded(found.pk, (), is_new=False)
    target = place.media / "captures"
    manifest = draw_nights(target, frames_per_night=frames, seed=SEED)
    say(f"{len(manifest.frames)} captures drawn")
    folders = sorted(path for path in target.iterdir() if path.is_dir())
    made = demo_project.create(folders, place.media, owner)
    return Seeded(made.project.pk, tuple(station.pk for station in made.stations), is_new=True)


def job(client: Client, seeded: Seeded, supervisor: Supervisor, say: Callable[[str], None]) -> int:
    """Synchronise the captures, and return a job over all of them that waits for its button.

    Raises:
        PartFailed: a part ended, or a step took too long.
    """

    def until(what: str, condition: Callable[[], Any]) -> Any:
        deadline = time.monotonic() + WAIT_SECONDS
        while not (answer := condition()):
            supervisor.check()
            if time.monotonic() > deadline:
                raise PartFailed(f"{what}: not within {WAIT_SECONDS:.0f} s; the lines of the parts are above.")
            time.sleep(POLL_SECONDS)
        return answer

    def is_done(number: int) -> bool:
        return client.get(f"jobs/{number}/")["status"] in FINAL

    def pipeline() -> int | None:
        found = client.get("ml/pipelines/", limit=100, project=seeded.project_id)["results"]
        return next((row["id"] for row in found if row["slug"] == demo_project.PIPELINE), None)

    synced = [client.post(f"deployments/{station}/sync/")["job_id"] for station in seeded.station_ids]
    until("captures synchronised", lambda: all(is_done(each) for each in synced))
    wanted = {"name": "All captures", "project": seeded.project_id, "method": "full"}
    collection = client.post("captures/collections/", wanted)
    populated = client.post(f"captures/collections/{collection['id']}/populate/")["job_id"]
    until("collection populated", lambda: is_done(populated))
    pipeline_id = until("pipeline registered", pipeline)
    say("captures synchronised; a job waits for its button")
    body = {
        "name": "All captures",
        "project": seeded.project_id,
        "job_type_key": "ml",
        "pipeline": pipeline_id,
        "source_image_collection": collection["id"],
    }
    return int(client.post("jobs/", body)["id"])
