"""Tasks that report their progress, for the acceptance tests."""

import time
from typing import Any

from celery import shared_task


@shared_task(bind=True, stall_seconds=3, max_retries=0)
def report_and_stall(self: Any) -> None:
    """Report once, then stay silent."""
    self.beat("step 1 of 2")
    time.sleep(60)


@shared_task(bind=True, stall_seconds=3, max_retries=0)
def report_steps(self: Any, steps: int) -> None:
    """Report a step a second."""
    for step in range(1, steps + 1):
        self.beat(f"step {step} of {steps}")
        time.sleep(1)
