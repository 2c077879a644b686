"""The work queue of pull jobs on NATS JetStream: synchronous functions with deadlines."""

from ami.jobs.services.jetstream.advisories import exhausted_images
from ami.jobs.services.jetstream.connection import close
from ami.jobs.services.jetstream.messages import Delivery, acknowledge, fetch, image_of_reply, in_progress, publish
from ami.jobs.services.jetstream.streams import (
    StreamState,
    consumer_state,
    create_stream,
    delete_job,
    job_streams,
    recreate_stream,
)

__all__ = [
    "Delivery",
    "StreamState",
    "acknowledge",
    "close",
    "consumer_state",
    "create_stream",
    "delete_job",
    "exhausted_images",
    "fetch",
    "image_of_reply",
    "in_progress",
    "job_streams",
    "publish",
    "recreate_stream",
]
