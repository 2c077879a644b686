"""Throttles that decide before a request's body is touched."""

from rest_framework.request import Request
from rest_framework.throttling import BaseThrottle
from rest_framework.views import APIView

from ami.main.services import login_attempts
from ami.main.services.client_address import address_of


class LoginAddressThrottle(BaseThrottle):
    """Counts attempts to sign in by the caller's address alone."""

    _wait_seconds = 0

    def allow_request(self, request: Request, view: APIView) -> bool:  # noqa: ARG002
        """Count a POST; say whether it may go on."""
        if request.method == "POST":
            self._wait_seconds = login_attempts.count_address(address_of(request))
        return not self._wait_seconds

    def wait(self) -> float | None:
        """Return the seconds for Retry-After."""
        return self._wait_seconds or None
