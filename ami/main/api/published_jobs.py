"""The 202 responses of requests that create a job."""

from typing import Any

from drf_spectacular.utils import extend_schema_serializer
from rest_framework import serializers, status
from rest_framework.response import Response

from ami.queues.publish import PublishedTask


@extend_schema_serializer(component_name="Asked")
class PublishedJobSerializer(serializers.Serializer[Any]):
    """A job and the task that was published for it."""

    job_id = serializers.IntegerField()
    name = serializers.CharField()
    task_id = serializers.CharField()
    queue = serializers.CharField()
    flower_url = serializers.CharField(allow_null=True)


def published_job(job: Any, published: PublishedTask) -> dict[str, Any]:
    """Return the body that `PublishedJobSerializer` describes."""
    return {
        "job_id": job.pk,
        "name": job.name,
        "task_id": published.task_id,
        "queue": published.queue,
        "flower_url": published.flower_url,
    }


def accepted_response(job: Any, published: PublishedTask) -> Response:
    return Response(published_job(job, published), status=status.HTTP_202_ACCEPTED)
