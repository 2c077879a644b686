"""Security headers: a content security policy for pages, and a stricter one for everything else."""

from csp.constants import HEADER, NONE, SELF
from csp.middleware import CSPMiddleware, PolicyParts
from django.http import HttpRequest
from django.http.response import HttpResponseBase

#: Pages load from and connect to our own origin only. A page that shows pictures of another origin sets them as
#: ``picture_sources`` of its response.
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

#: JSON, files and errors: even if a browser renders one as a page, it runs no scripts and has no origin.
DATA = {
    "default-src": [NONE],
    "form-action": [NONE],
    "base-uri": [NONE],
    "frame-ancestors": [NONE],
    "sandbox": True,
}

#: The namespaces of the pages' addresses.
PAGES = frozenset({"admin", "console", "api_docs"})

FEATURES = ("camera", "display-capture", "geolocation", "microphone", "midi", "payment", "serial", "usb")
PERMISSIONS = ", ".join(f"{feature}=()" for feature in FEATURES)


class ResponseHeadersMiddleware(CSPMiddleware):
    """The outermost middleware, so that static files, redirects and errors have the headers, too.

    Django's error pages with DEBUG on have no policy: they contain inline scripts.
    """

    def get_policy_parts(
        self, request: HttpRequest, response: HttpResponseBase, report_only: bool = False
    ) -> PolicyParts:
        if report_only:
            return PolicyParts()
        if not is_page(request, response):
            return PolicyParts(config=DATA)
        sources = getattr(response, "picture_sources", None)
        return PolicyParts(config=PAGE, update={"img-src": sources} if sources else None)

    def process_response(self, request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        """Add the headers that the view has not set."""
        response.headers.setdefault("Permissions-Policy", PERMISSIONS)
        if HEADER in response.headers:
            return response
        return super().process_response(request, response)


def is_page(request: HttpRequest, response: HttpResponseBase) -> bool:
    """Whether the response is HTML of one of `PAGES`; other HTML, such as a stored file, is data."""
    match = request.resolver_match
    html = response.headers.get("Content-Type", "").startswith("text/html")
    return html and match is not None and not PAGES.isdisjoint(match.namespaces)
