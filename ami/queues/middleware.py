"""Answers for a user when the broker accepts no message, the database is away, or it refuses a value."""

import logging
import sys
from collections.abc import Callable

from django.db import Error
from django.http import HttpRequest, HttpResponse
from django.views.defaults import server_error
from kombu.exceptions import OperationalError

from ami.celery import outages
from ami.celery.database_away import is_away
from ami.queues.admin_site.checked_values import NOT_STORABLE

logger = logging.getLogger(__name__)

RETRY_SECONDS = 10
SENTENCE = (
    "The message broker does not take messages at the moment, so nothing was started. What you entered is kept "
    "where it was saved; go back and try again in a few seconds."
)
NO_DATABASE = (
    "The database does not answer at the moment, so this page cannot be shown, and nothing was changed. Try again in a "
    "few seconds. For the operator: 'manage.py queues check --live' says why, and docs/operations.md what then works."
)
REFUSED = (
    "The database cannot hold one of the values in this request: half a surrogate pair, a date outside the calendar "
    "or a number that is too large. Nothing was saved; go back, correct it and send it again."
)


def unavailable(exception: BaseException | None) -> HttpResponse | None:
    """Return the answer for an error of the broker, or of a database that is away; None for any other."""
    sentence = SENTENCE if isinstance(exception, OperationalError) else ""
    if isinstance(exception, Error) and is_away(exception):
        outages.failed(exception)
        sentence = NO_DATABASE
    if not sentence:
        return None
    headers = {"Retry-After": str(RETRY_SECONDS)}
    return HttpResponse(f"{sentence}\n", status=503, content_type="text/plain; charset=utf-8", headers=headers)


def failed_request(request: HttpRequest) -> HttpResponse:
    """Answer a request that failed outside of its view, such as by its session: Django's ``handler500``."""
    return unavailable(sys.exc_info()[1]) or server_error(request)


class FailedViewMiddleware:
    """Answers 503 and Retry-After where a view found the broker or the database away; the API has its own handler.

    It answers 400 with a sentence where a value reached the admin's database that no check had found.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        return self._get_response(request)

    def process_exception(self, request: HttpRequest, exception: Exception) -> HttpResponse | None:
        """Answer for such an error; that of a value is logged, and without input the fault is our own."""
        if (answer := unavailable(exception)) is not None:
            return answer
        in_admin = request.resolver_match is not None and request.resolver_match.app_name in ("admin", "console")
        has_input = bool(request.GET) or request.method == "POST"
        if not (in_admin and has_input and isinstance(exception, NOT_STORABLE)):
            return None
        logger.error("Request value cannot be stored", extra={"path": request.path}, exc_info=exception)
        return HttpResponse(REFUSED, status=400, content_type="text/plain; charset=utf-8")
