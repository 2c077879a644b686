"""A task that the topology does not route, so that the demo shows what becomes of one."""

from celery import shared_task


@shared_task
def forgotten_by_the_table() -> None:
    """Do nothing; the point is where it runs."""
