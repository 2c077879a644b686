"""Signs in by Django's session, as a browser on the same address does."""

from rest_framework import authentication
from rest_framework.exceptions import UnsupportedMediaType
from rest_framework.request import Request, is_form_media_type


class SessionAuthentication(authentication.SessionAuthentication):
    """The CSRF token comes in the header, never in the body: no body is read to find out who sends it."""

    def enforce_csrf(self, request: Request) -> None:
        """Check the header X-CSRFToken.

        Raises:
            rest_framework.exceptions.PermissionDenied: it is missing or wrong.
            rest_framework.exceptions.UnsupportedMediaType: the body is a form, which no address of the API takes.
        """
        if request.method == "POST" and is_form_media_type(request.content_type):
            raise UnsupportedMediaType(request.content_type)
        # The plain request finds no form in a JSON body and leaves it unread; REST framework's own would parse it here.
        super().enforce_csrf(request._request)
