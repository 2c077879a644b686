"""Changes a running worker past its refusals, by commands of remote control that only the acceptance tests have."""

from typing import Any

from celery.worker import state as worker_state
from celery.worker.control import control_command

from ami import celery_internals


@control_command()
def drift(state: Any, how: str, **_: Any) -> dict[str, str]:
    """Make the worker differ from what is wanted of it."""
    consumer = state.consumer
    tasks = consumer.task_consumer
    own = consumer.controller.own_queues[0]
    if how == "cancel_consumer":
        consumer.cancel_task_queue(own)
    elif how == "cancel on the channel":
        for tag in list(celery_internals.consumer_tags(tasks.channel)):
            if tag in getattr(tasks, "_open", {}) or tag in tasks._active_tags.values():
                tasks.channel.basic_cancel(tag)
    elif how == "open the closed":
        tasks.close_queues(())
    elif how == "foreign queue":
        consumer.add_task_queue("antenna-housekeeping")
    elif how == "shrink":
        consumer.pool.shrink(1)
    elif how == "time limit":
        consumer.app.tasks["tests.support.worker_tasks.basic.succeed"].time_limit = 1
    return {"ok": how}


@control_command()
def forget_what_runs(state: Any, **_: Any) -> dict[str, str]:  # noqa: ARG001
    """Make the worker hold messages that it knows nothing of."""
    for request in list(worker_state.active_requests):
        worker_state.active_requests.discard(request)
        worker_state.reserved_requests.discard(request)
    return {"ok": "forgotten"}
