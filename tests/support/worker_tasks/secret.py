"""A task that has a secret among its arguments, for the acceptance tests."""

import time
from typing import Any

from celery import shared_task


@shared_task(bind=True, sensitive=("token",), ignore_result=False, max_retries=1)
def use_token(self: Any, seconds: float, token: str) -> None:
    """Hold for a while, try again once, then fail with the token in the message."""
    time.sleep(seconds)
    try:
        raise ValueError(f"the service refused {token}")
    except ValueError as error:
        if self.request.retries == 0:
            raise self.retry(exc=error, countdown=0) from error
        raise
