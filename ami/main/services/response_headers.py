"""The headers that tell a browser what an answer may do: a page of the admin very little, everything else nothing."""

from csp.constants import NONE, SELF
from csp.middleware import CSPMiddleware, PolicyParts
from django.http import HttpRequest
from django.http.response import HttpResponseBase

#: Pages load our own files and talk to us alone. No page shows a picture of another origin; one that does adds it here.
PAGE = {
    "default-src": [NONE],
    "script-src": [SELF],
    "style-src": [SELF],
    "img-src": [SELF],
    "font-src": [SELF],
    "connect-src": [SELF],
    "form-action": [SELF],
    "base-uri": [NONE],
    "object-src": [NONE],
    "frame-ancestors": [NONE],
}

#: JSON, files and errors: even one that a browser takes for a page runs nothing and belongs to no origin.
DATA = {
    "default-src": [NONE],
    "form-action": [NONE],
    "base-uri": [NONE],
    "frame-ancestors": [NONE],
    "sandbox": True,
}

FEATURES = ("camera", "display-capture", "geolocation", "microphone", "midi", "payment", "serial", "usb")
PERMISSIONS = ", ".join(f"{feature}=()" for feature in FEATURES)


class ResponseHeadersMiddleware(CSPMiddleware):
    """Stands first, so that static files, redirects and errors have the headers, too.

    Django's own answers with a traceback, while DEBUG is on, have no policy: they are pages with scripts inside.
    """

    def get_policy_parts(
        self, request: HttpRequest, response: HttpResponseBase, report_only: bool = False
    ) -> PolicyParts:
        """Return the policy of this answer."""
        if report_only:
            return PolicyParts()
        return PolicyParts(config=PAGE if is_page(request, response) else DATA)

    def process_response(self, request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        """Add the headers; one that a view has set stays."""
        response.headers.setdefault("Permissions-Policy", PERMISSIONS)
        return super().process_response(request, response)


def is_page(request: HttpRequest, response: HttpResponseBase) -> bool:
    """Whether the answer is HTML of the admin; HTML from anywhere else, for example a stored file, is data."""
    match = request.resolver_match
    html = response.headers.get("Content-Type", "").startswith("text/html")
    return html and match is not None and "admin" in match.namespaces
