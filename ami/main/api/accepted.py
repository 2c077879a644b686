"""What the API answers when a person's request became a job."""

from typing import Any

from rest_framework import serializers, status
from rest_framework.response import Response

from ami.queues.publish import PublishedTask


class AskedSerializer(serializers.Serializer[Any]):
    """The job that will do it, and where its task went."""

    job_id = serializers.IntegerField()
    name = serializers.CharField()
    task_id = serializers.CharField()
    queue = serializers.CharField()
    flower_url = serializers.CharField(allow_null=True)


def answer(job: Any, published: PublishedTask) -> dict[str, Any]:
    """Return the body that `AskedSerializer` describes."""
    return {
        "job_id": job.pk,
        "name": job.name,
        "task_id": published.task_id,
        "queue": published.queue,
        "flower_url": published.flower_url,
    }


def accepted(job: Any, published: PublishedTask) -> Response:
    """Answer 202 with the job, its task and its queue."""
    return Response(answer(job, published), status=status.HTTP_202_ACCEPTED)
