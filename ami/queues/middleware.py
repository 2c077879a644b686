"""What a person sees when the broker does not take messages."""

from collections.abc import Callable

from django.http import HttpRequest, HttpResponse
from kombu.exceptions import OperationalError

RETRY_SECONDS = 10
SENTENCE = (
    "The message broker does not take messages at the moment, so nothing was started. What you entered is kept "
    "where it was saved; go back and try again in a few seconds."
)


class BrokerAwayMiddleware:
    """Answers 503 with one sentence and Retry-After where a view could not publish; the API has its own handler."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        """Pass the request on."""
        return self._get_response(request)

    def process_exception(self, _: HttpRequest, exception: Exception) -> HttpResponse | None:
        """Turn a broker that is away into an answer; leave every other error alone."""
        if not isinstance(exception, OperationalError):
            return None
        return HttpResponse(
            SENTENCE, status=503, content_type="text/plain; charset=utf-8", headers={"Retry-After": str(RETRY_SECONDS)}
        )
