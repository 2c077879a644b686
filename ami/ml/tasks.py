"""The tasks of the app `ml`: crops and service checks, thin wrappers around `ami.ml.services`."""

from typing import TYPE_CHECKING

from celery import shared_task
from django.db import InterfaceError, OperationalError

from ami.admission.policies import Permits, Unique
from ami.environment.deferred import deferred
from ami.ml.errors import CropsFailed, CropsRefused
from ami.ml.models import ProcessingService

if TYPE_CHECKING:
    from ami.ml.services import crops, probes, registration
else:
    crops = deferred("ami.ml.services.crops")
    probes = deferred("ami.ml.services.probes")
    registration = deferred("ami.ml.services.registration")


@shared_task(
    name="ami.ml.tasks.create_detection_images",
    triggered_by="process_nats_pipeline_result, process_nats_pipeline_results",
    autoretry_for=(CropsFailed, OperationalError, InterfaceError, OSError),
    dont_autoretry_for=(CropsRefused,),
    retry_backoff=5,
    retry_backoff_max=300,
    max_retries=5,
    fair_by="project_id",
    ignore_result=True,
)
def create_detection_images(source_image_ids: list[int], project_id: int | None = None) -> None:  # noqa: ARG001 - its turn
    """Make the crops of these captures. A retry covers only the captures that failed.

    If no retry can help for any failed capture, the message is buried with the reasons.
    """
    crops.make_crops(source_image_ids)


@shared_task(
    name="ami.ml.tasks.check_processing_services_online",
    triggered_by="beat",
    soft_time_limit=90,
    time_limit=120,
    ignore_result=True,
)
def check_processing_services_online() -> None:
    """Update the liveness of all services: pull services in one statement, then the others by concurrent probes."""
    probes.mark_unseen_offline()
    probes.probe_all(ProcessingService.objects.exclude(endpoint_url=None).exclude(endpoint_url=""))


@shared_task(
    name="ami.ml.tasks.check_processing_service",
    triggered_by="people (API, admin)",
    soft_time_limit=150,
    time_limit=180,
    unique=Unique(by=("service_id", "project_ids")),
    permits=Permits(1, per="service_id"),
    ignore_result=True,
)
def check_processing_service(service_id: int, project_ids: list[int] | None = None) -> None:
    """Probe one service now and register its pipelines in its projects, or in the given ones among them.

    A call that comes while the same one waits or runs is dropped; a service is probed by one call at a time.
    """
    if service := ProcessingService.objects.filter(pk=service_id).first():
        status = probes.check_now(service)
        projects = service.projects.order_by("pk").values_list("pk", flat=True)
        wanted = [pk for pk in projects if project_ids is None or pk in project_ids]
        registration.register(service, wanted, status.pipeline_configs)
