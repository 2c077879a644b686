"""Unrelated users, each with a project and a row of each kind."""

from dataclasses import dataclass, field
from typing import Any

from rest_framework.test import APIClient

from ami.exports.models import DataExport
from ami.jobs.models import Job
from ami.main.models import Device, Event, S3StorageSource, Site, SourceImageCollection
from ami.main.services import tokens
from ami.ml.models import ProcessingService
from tests.support.product import factories
from tests.support.product.job_setup import World, new_world


@dataclass
class Tenant:
    """One user's project with a row of each kind, and clients with the user's tokens."""

    world: World
    job: Job
    capture: Any
    rows: dict[str, Any] = field(default_factory=dict)

    @property
    def client(self) -> APIClient:
        return self.client_with(tokens.issue(self.world.user)[1])

    def worker(self) -> APIClient:
        """A client with a worker's token of the project."""
        _, key = tokens.issue(self.world.user, scope=tokens.Scope.WORKER, projects=[self.world.project])
        return self.client_with(key)

    @staticmethod
    def client_with(key: str) -> APIClient:
        client = APIClient(raise_request_exception=False)
        client.credentials(HTTP_AUTHORIZATION=f"Token {key}")
        return client


def tenant(name: str) -> Tenant:
    world = new_world(name)
    [capture] = world.captures(1)
    job = world.running([capture])
    service = ProcessingService.objects.create(name=f"Pull {name}", endpoint_url=None)
    service.projects.add(world.project)
    service.pipelines.add(world.pipeline)
    occurrence = factories.occurrence(capture, factories.taxon())
    project = world.project
    rows = {
        "projects": project,
        "deployments": world.station,
        "events": Event.objects.create(project=project, deployment=world.station, group_by=factories.NIGHT.date()),
        "captures/collections": SourceImageCollection.objects.create(name=name, project=project),
        "captures": capture,
        "detections": occurrence.detection,
        "occurrences": occurrence,
        "jobs": job,
        "exports": DataExport.objects.create(project=project, format="occurrences_simple_csv"),
        "ml/pipelines": world.pipeline,
        "ml/processing_services": service,
        "site": Site.objects.create(name=name, project=project),
        "device": Device.objects.create(name=name, project=project),
        "source": S3StorageSource.objects.create(name=name, project=project, secret_key="key-of-the-bucket"),
    }
    return Tenant(world, job, capture, rows)
