"""The steps of the main job, through the same commands and API as a deployment and its users."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import httpx

from demo.client import ApiRefused, Client
from demo.progress import Progress
from demo.project import PIPELINE, DemoProject

if TYPE_CHECKING:
    from demo.environment import Environment
    from demo.processes import Processes

PYTHON = sys.executable
FINAL = ("SUCCESS", "FAILURE", "REVOKED")


@dataclass
class Steps:
    """The steps, in the order of their methods. ``has_styles``: web serves style sheets, for people who look at it."""

    environment: Environment
    processes: Processes
    progress: Progress
    demo: DemoProject
    client: Client
    pullers: int = 2
    has_styles: bool = False

    def start_antenna(self, queues: tuple[str, ...]) -> None:
        """Start the web server, one worker per queue, and beat, as a deployment does."""
        bind = urlsplit(self.environment.web).netloc
        gunicorn = [PYTHON, "-m", "gunicorn", "config.wsgi", "--bind", bind, "--workers", "1", "--threads", "8"]
        gunicorn += ["--no-control-socket"]
        styles = {"DJANGO_DEBUG": "1"} if self.has_styles else {}
        self.processes.start("web", [*gunicorn, "--access-logfile", "/dev/null", "--timeout", "120"], **styles)
        for queue in queues:
            self.processes.start(queue, [PYTHON, "-m", "ami.topology", "worker", queue])
        self.processes.start("beat", [PYTHON, "-m", "ami.topology", "beat"])

    def await_antenna(self, queues: tuple[str, ...]) -> None:
        """Wait for the web server, sign in, and wait for a worker per queue."""
        self.progress.until("the web server to answer", self._web_lives)
        self.client.log_in(self.demo.owner.email, self.demo.password)
        self.progress.until(f"{len(queues)} workers to answer", lambda: self._workers_answer(len(queues)))

    def _web_lives(self) -> bool:
        try:
            return httpx.get(f"{self.environment.web}/livez", timeout=5).status_code == 200
        except httpx.HTTPError:
            return False

    def _workers_answer(self, count: int) -> bool:
        from config import celery_app

        return len(celery_app.control.inspect(timeout=1.0).ping() or {}) >= count

    def start_processing(self) -> None:
        """Start the reference processing service in push and pull mode, and wait for its registration."""
        if not self.environment.is_deployed:
            push = [PYTHON, "-m", "processing_service", "serve", "--port", str(urlsplit(self.environment.push).port)]
            self.processes.start("processing-push", push)
        pull = [PYTHON, "-m", "processing_service", "pull", "--antenna", self.environment.web]
        pull += ["--token-env", "ANTENNA_TOKEN", "--project", str(self.demo.project.pk), "--name", "demo puller"]
        pull += ["--pullers", str(self.pullers), "--poll-seconds", "0.5", "--batch-size", "4"]
        self.processes.start("processing-pull", pull, ANTENNA_TOKEN=self.client.token)
        self.progress.until("the processing service to register its pipelines", self.pipeline_id)

    def pipeline_id(self) -> int | None:
        """Return the pipeline's primary key; None until the puller has registered it."""
        found = self.client.get("ml/pipelines/", limit=100, project=self.demo.project.pk)["results"]
        return next((row["id"] for row in found if row["slug"] == PIPELINE), None)

    def sync(self) -> int:
        """Run each station's sync job, which registers and groups its captures; return the number of captures."""
        jobs = [self.client.post(f"deployments/{station.pk}/sync/")["job_id"] for station in self.demo.stations]
        for job in jobs:
            self.finish(job, f"the sync of {len(jobs)} stations")
        return int(self.client.get("captures/", limit=1, project=self.demo.project.pk)["count"])

    def main_job(self) -> int:
        """Create and start the job over all captures; return its primary key."""
        collection = self.client.post(
            "captures/collections/", {"name": "All captures", "project": self.demo.project.pk, "method": "full"}
        )
        populate = self.client.post(f"captures/collections/{collection['id']}/populate/")
        self.finish(populate["job_id"], "the collection of all captures")
        body = {
            "name": "Main job",
            "project": self.demo.project.pk,
            "job_type_key": "ml",
            "pipeline": self.pipeline_id(),
            "source_image_collection": collection["id"],
        }
        return int(self.client.post("jobs/", body, start_now=1)["id"])

    def start_side_work(self) -> dict[str, Any]:
        """Start what users do during a job: reprocess a capture, check a service, export; and send an unrouted task."""
        from demo.tasks import forgotten_by_the_table

        project = self.demo.project.pk
        capture = self.client.get("captures/", limit=1, project=project)["results"][0]["id"]
        service = {"name": "demo push", "endpoint_url": self.environment.push, "project": project}
        started = {
            "reprocess": self.client.post(f"captures/{capture}/reprocess/", {"pipeline": self.pipeline_id()}),
            "export": self.client.post("exports/", {"project": project, "format": "occurrences_simple_csv"}),
            "service": self.client.post("ml/processing_services/", service),
        }
        self.client.post(f"ml/processing_services/{started['service']['id']}/check/")
        forgotten_by_the_table.delay()
        return started

    def finish(self, job: int, what: str) -> dict[str, Any]:
        """Wait until a job is final and return it; ``what`` names it. Raises `StepTimeout`."""

        def final() -> dict[str, Any] | None:
            found = self._job(job)
            return found if found.get("status") in FINAL else None

        def stages() -> list[dict[str, Any]]:
            return list(self._job(job).get("progress", {}).get("stages", []))

        done: dict[str, Any] = self.progress.until(f"{what}, job {job}", final, stages)
        return done

    def _job(self, job: int) -> dict[str, Any]:
        try:
            return dict(self.client.get(f"jobs/{job}/"))
        except (ApiRefused, httpx.HTTPError):
            return {}
