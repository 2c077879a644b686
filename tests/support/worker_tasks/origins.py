"""Tasks that show where a message lands; their names match globs of the table, as the product's own do."""

from celery import Task, current_app, shared_task

#: Housekeeping's when beat or a task asks, interactive when a person does.
RETRYING = "ami.jobs.tasks.audit_retrying_once"
PUBLISHING = "ami.jobs.tasks.audit_publishing"
SUBTASK = "ami.jobs.tasks.audit_published"

#: Ingest's; its row inherits no origin.
INGESTED = "ami.main.tasks.published_calculated_fields"


@shared_task(bind=True, name=RETRYING, max_retries=1)
def audit_retrying_once(self: Task, countdown: float = 0, **_: object) -> None:
    """Retry once, at once or after a countdown, then succeed."""
    if self.request.retries == 0:
        raise self.retry(countdown=countdown)


@shared_task(name=PUBLISHING)
def audit_publishing(mark: str) -> None:
    """Publish one task of each kind."""
    for name in (SUBTASK, INGESTED):
        current_app.tasks[name].delay(mark=mark)


@shared_task(name=SUBTASK)
def audit_published(mark: str) -> None:
    """Do nothing."""


@shared_task(name=INGESTED)
def published_calculated_fields(mark: str) -> None:
    """Do nothing."""
