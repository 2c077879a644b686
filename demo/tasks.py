"""A task that the topology does not route: the demo shows that it runs on the fallback queue."""

from celery import shared_task


@shared_task
def forgotten_by_the_table() -> None:
    """Do nothing."""
