"""Answers for a user when the broker accepts no message, or the database refuses a value."""

import logging
from collections.abc import Callable

from django.http import HttpRequest, HttpResponse
from kombu.exceptions import OperationalError

from ami.queues.admin_site.checked_values import NOT_STORABLE

logger = logging.getLogger(__name__)

RETRY_SECONDS = 10
SENTENCE = (
    "The message broker does not take messages at the moment, so nothing was started. What you entered is kept "
    "where it was saved; go back and try again in a few seconds."
)
REFUSED = (
    "The database cannot hold one of the values in this request: half a surrogate pair, a date outside the calendar "
    "or a number that is too large. Nothing was saved; go back, correct it and send it again."
)


class BrokerUnreachableMiddleware:
    """Answers 503 and Retry-After when a view could not publish; the API has its own handler."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        return self._get_response(request)

    def process_exception(self, _: HttpRequest, exception: Exception) -> HttpResponse | None:
        """Answer 503 for an unreachable broker; leave every other error alone."""
        if not isinstance(exception, OperationalError):
            return None
        return HttpResponse(
            SENTENCE, status=503, content_type="text/plain; charset=utf-8", headers={"Retry-After": str(RETRY_SECONDS)}
        )


class UnstorableValueMiddleware:
    """Answers 400 with a sentence where a value reached the admin's database that no check had found."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        return self._get_response(request)

    def process_exception(self, request: HttpRequest, exception: Exception) -> HttpResponse | None:
        """Answer 400 for such a value, and log its traceback; without input the fault is our own."""
        in_admin = request.resolver_match is not None and request.resolver_match.app_name in ("admin", "console")
        has_input = bool(request.GET) or request.method == "POST"
        if not (in_admin and has_input and isinstance(exception, NOT_STORABLE)):
            return None
        logger.error("Request value cannot be stored", extra={"path": request.path}, exc_info=exception)
        return HttpResponse(REFUSED, status=400, content_type="text/plain; charset=utf-8")
