"""Authentication by Django's session, for browsers on the same origin."""

from rest_framework import authentication
from rest_framework.exceptions import UnsupportedMediaType
from rest_framework.request import Request, is_form_media_type


class SessionAuthentication(authentication.SessionAuthentication):
    """Takes the CSRF token from the header only, so that no body is read to authenticate a request."""

    def enforce_csrf(self, request: Request) -> None:
        """Check the header X-CSRFToken.

        Raises:
            rest_framework.exceptions.PermissionDenied: it is missing or wrong.
            rest_framework.exceptions.UnsupportedMediaType: the body is a form, which no endpoint accepts.
        """
        if request.method == "POST" and is_form_media_type(request.content_type):
            raise UnsupportedMediaType(request.content_type)
        # Django's request does not read a JSON body to look for a form; REST framework's request would parse it.
        super().enforce_csrf(request._request)
