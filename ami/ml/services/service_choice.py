"""Which processing service is called for a pipeline; loads no HTTP client."""

from ami.ml.models import Pipeline, ProcessingService


def best_service(pipeline: Pipeline, project_id: int) -> ProcessingService | None:
    """Return the best service with an address that runs the pipeline for the project: live before dead, then by
    latency. None without one.
    """
    services = (
        pipeline.processing_services.filter(projects=project_id).exclude(endpoint_url=None).exclude(endpoint_url="")
    )
    best = sorted(services, key=lambda each: (each.last_seen_live is not True, each.last_seen_latency or 0.0, each.pk))
    return best[0] if best else None
