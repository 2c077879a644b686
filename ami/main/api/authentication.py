"""Token authentication, and the scope of a worker's token."""

from typing import Any

from django.conf import settings
from rest_framework.authentication import TokenAuthentication as HeaderAuthentication
from rest_framework.authentication import get_authorization_header
from rest_framework.exceptions import AuthenticationFailed, PermissionDenied
from rest_framework.request import Request

from ami.main.models import ApiToken, User
from ami.main.services import tokens

OUTSIDE_WORKER_SCOPE = "This token is a worker's: it fetches and returns the work of its projects, and nothing else."

API_KEY = "Api-Key"


class TokenAuthentication(HeaderAuthentication):
    """``Authorization: Token <40 hex>``, against the stored hashes; ``Api-Key`` for a worker's, with ANTENNA_API_KEY.

    A worker's token opens only views with a method ``admits_worker(request) -> bool`` that returns true. The check is
    here and not among the permissions, which each view may replace: the default is to refuse.
    """

    def authenticate(self, request: Request) -> tuple[User, ApiToken] | None:
        """Return the user and the token; None without such a header.

        Raises:
            PermissionDenied: a worker's token on a view that does not admit workers.
        """
        if settings.ANTENNA_API_KEY and get_authorization_header(request).lower().startswith(b"api-key "):
            self.keyword = API_KEY
        user_and_token: tuple[User, ApiToken] | None = super().authenticate(request)
        if user_and_token is not None and user_and_token[1].is_worker and not _admits(request):
            raise PermissionDenied(OUTSIDE_WORKER_SCOPE)
        return user_and_token

    def authenticate_credentials(self, key: str) -> tuple[User, ApiToken]:
        """Return the user and the token; the 401 does not say what is wrong with the key."""
        token = tokens.find(key)
        if token is None or not token.user.is_active or (self.keyword == API_KEY and not token.is_worker):
            raise AuthenticationFailed("Invalid token.")
        return token.user, token


def _admits(request: Request) -> bool:
    view: Any = (request.parser_context or {}).get("view")
    admits = getattr(view, "admits_worker", None)
    return bool(admits and admits(request))
