"""The tasks of the app `ml`; each is a thin door to a function beside it."""

from celery import shared_task
from django.db import InterfaceError, OperationalError

from ami.ml.models import ProcessingService
from ami.ml.services import crops, probes
from ami.ml.services.registration import register


@shared_task(
    name="ami.ml.tasks.create_detection_images",
    triggered_by="process_nats_pipeline_result",
    autoretry_for=(crops.CropsFailed, OperationalError, InterfaceError, OSError),
    dont_autoretry_for=(crops.CropsRefused,),
    retry_backoff=5,
    retry_backoff_max=300,
    max_retries=5,
    ignore_result=True,
)
def create_detection_images(source_image_ids: list[int]) -> None:
    """Cut the crops of these captures; captures that fail are retried, the others are done by then.

    A picture that can never be opened is not retried: the message is buried with the reason.
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
    """Ask every service whether it lives: first those that pull (one statement), then all others at once."""
    probes.mark_unseen_offline()
    probes.probe_all(ProcessingService.objects.exclude(endpoint_url=None).exclude(endpoint_url=""))


@shared_task(
    name="ami.ml.tasks.check_processing_service",
    triggered_by="people (API, admin)",
    soft_time_limit=60,
    time_limit=90,
    ignore_result=True,
)
def check_processing_service(service_id: int, project_ids: list[int] | None = None) -> None:
    """Ask one service now and register what it says that it runs, in its projects or in those of them given."""
    if service := ProcessingService.objects.filter(pk=service_id).first():
        status = probes.check_now(service)
        projects = service.projects.order_by("pk").values_list("pk", flat=True)
        wanted = [pk for pk in projects if project_ids is None or pk in project_ids]
        register(service, wanted, status.pipeline_configs)
