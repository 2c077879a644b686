"""Throttles that run before the request body is read."""

from rest_framework.request import Request
from rest_framework.throttling import BaseThrottle
from rest_framework.views import APIView

from ami.main.services import login_attempts
from ami.main.services.client_address import address_of


class LoginAddressThrottle(BaseThrottle):
    """Limits sign-in attempts per client address."""

    _wait_seconds = 0

    def allow_request(self, request: Request, view: APIView) -> bool:  # noqa: ARG002
        if request.method == "POST":
            self._wait_seconds = login_attempts.count_address(address_of(request))
        return not self._wait_seconds

    def wait(self) -> float | None:
        return self._wait_seconds or None
