"""The OpenAPI description of session authentication."""

from drf_spectacular.authentication import SessionScheme


class HeaderSessionScheme(SessionScheme):
    """Django's session, as in `ami.main.api.session_authentication`."""

    target_class = "ami.main.api.session_authentication.SessionAuthentication"
    name = "cookieAuth"
