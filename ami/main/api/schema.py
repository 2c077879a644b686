"""How the OpenAPI schema describes our ways to sign in."""

from drf_spectacular.authentication import SessionScheme


class HeaderSessionScheme(SessionScheme):
    """Django's session, as `ami.main.api.session_authentication` takes it."""

    target_class = "ami.main.api.session_authentication.SessionAuthentication"
    name = "cookieAuth"
