"""Posts a push job's images to a processing service batch by batch, and saves the responses."""

from django.db.models import F
from django.utils import timezone

from ami.jobs.models import Job, JobImage
from ami.jobs.models.states import ImageState
from ami.jobs.services.cold_wait import ColdWait, SliceOver
from ami.jobs.services.existing_boxes import Boxes, requests_for, with_boxes
from ami.jobs.services.expected_results import Expected
from ami.jobs.services.image_errors import log_failures
from ami.jobs.services.image_settlement import settle_failed
from ami.jobs.services.job_kinds import SliceOfWork
from ami.jobs.services.job_results import save_results
from ami.ml.errors import PipelineNotConfigured, ServiceRefused, ServiceUnreachable
from ami.ml.models.pipeline import for_service
from ami.ml.schemas import PipelineRequest, SourceImageRequest
from ami.ml.services.capture_files import public_url
from ami.ml.services.pipeline_names import slug_at
from ami.ml.services.service_client import MAX_BATCH_SIZE, process, service_for
from ami.ml.services.wire import Names


def push(job: Job, work: SliceOfWork) -> bool:
    """Send the unsettled images; return whether none is left.

    If the service refuses a batch or does not answer, only the images of that batch fail.

    Raises:
        PipelineNotConfigured: the job has no pipeline, or no service with an address runs it.
        JobStopped: the job is no longer active.
    """
    images = JobImage.objects.filter(job=job).unsettled().select_related("source_image").order_by("position")
    if not images.exists():
        return True
    if job.pipeline is None:
        raise PipelineNotConfigured(f"Job {job.pk} has no pipeline.")
    config = job.pipeline.config_for(job.project_id)
    size = max(1, min(MAX_BATCH_SIZE, int(config.get("request_source_image_batch_size") or 1)))
    parameters = for_service(config)
    wait = ColdWait(job, work)
    while batch := list(images[:size]):
        for part, boxes in with_boxes(job, batch):
            job.save_progress()
            try:
                _push_batch(job, part, parameters, boxes=boxes, wait=wait)
            except SliceOver:
                return False
            wait.is_first = False
            if work.over():
                return not images.exists()
    return True


def _push_batch(job: Job, batch: list[JobImage], config: dict[str, object], *, boxes: Boxes, wait: ColdWait) -> None:
    pipeline = job.pipeline
    if pipeline is None:
        raise PipelineNotConfigured(f"Job {job.pk} has no pipeline.")
    service = service_for(pipeline, job.project_id)
    ids = [row.source_image_id for row in batch]
    JobImage.objects.filter(pk__in=[row.pk for row in batch]).update(
        state=ImageState.CLAIMED, attempts=F("attempts") + 1, published_at=timezone.now()
    )
    pictures = [SourceImageRequest(id=str(row.source_image_id), url=public_url(row.source_image)) for row in batch]
    request = PipelineRequest(
        pipeline=slug_at(service, pipeline),
        source_images=pictures,
        detections=requests_for(pictures, boxes),
        config=config,
    )
    try:
        response = process(service, request, cold_start_seconds=wait.seconds_left(), pause=wait.pause)
        if reason := Expected(job).refusal(Names.of(response), sent=request.detections or ()):
            raise ServiceRefused(f"{service.name} sent a result that is refused: {reason}")
    except (ServiceUnreachable, ServiceRefused) as error:
        settle_failed(job.pk, ids, str(error))
        job.log(f"{len(ids)} images failed: {error}", level="ERROR", source_image_ids=ids)
        return
    saved = save_results(job, response, only=set(ids))
    if missing := set(ids) - saved:
        reason = f"{service.name} sent no result for this image."
        log_failures(job, [(image_id, reason) for image_id in settle_failed(job.pk, missing, reason)])
