"""Turns exceptions into API responses: an unreachable service is a 503 with Retry-After, without credentials."""

from typing import Any

from django.conf import settings
from django.core.exceptions import RequestDataTooBig
from django.db import DataError, Error
from django.http import UnreadablePostError
from kombu.exceptions import OperationalError
from rest_framework import status
from rest_framework.exceptions import ValidationError
from rest_framework.response import Response
from rest_framework.views import exception_handler as default_handler

from ami.celery import outages
from ami.celery.database_away import is_away
from ami.jobs.errors import NatsUnavailable, NotAllowed, UnknownKind
from ami.main.api.budgets import TooLarge
from ami.main.api.errors import Conflict, TooSlow

RETRY_AFTER_SECONDS = 5


def exception_handler(exc: Exception, context: dict[str, Any]) -> Response | None:
    """Answer as Django REST framework does; unreachable services as 503, errors of jobs as 409 or 400."""
    if isinstance(exc, OperationalError):
        return _unavailable("The message broker is unreachable. Accepted data is kept; send the request again.")
    if isinstance(exc, Error) and is_away(exc):
        outages.failed(exc)
        return _unavailable("The database does not answer. Send the request again.")
    if isinstance(exc, NatsUnavailable):
        outages.failed(exc)
        return _unavailable("NATS is unreachable.")
    if isinstance(exc, NotAllowed):
        exc = Conflict(str(exc))
    elif isinstance(exc, RequestDataTooBig):
        exc = TooLarge(f"The body has more than {settings.DATA_UPLOAD_MAX_MEMORY_SIZE} bytes.")
    elif isinstance(exc, UnreadablePostError):
        exc = TooSlow("The body did not arrive completely, or not in time.")
    elif isinstance(exc, DataError):
        exc = ValidationError({"detail": ["The request holds a value that the database cannot store."]})
    elif isinstance(exc, UnknownKind):
        return Response({"job_type_key": [str(exc.args[0])]}, status=status.HTTP_400_BAD_REQUEST)
    return default_handler(exc, context)


def _unavailable(detail: str) -> Response:
    return Response(
        {"detail": detail},
        status=status.HTTP_503_SERVICE_UNAVAILABLE,
        headers={"Retry-After": str(RETRY_AFTER_SECONDS)},
    )
