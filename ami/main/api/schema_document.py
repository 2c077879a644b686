"""The API's OpenAPI schema, rendered once: it takes most of a second, and strangers may ask for it."""

import hashlib
import threading
from functools import cache
from typing import Any

from django.http import HttpResponse
from django.http.response import HttpResponseBase
from django.utils.cache import get_conditional_response
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.renderers import OpenApiJsonRenderer, OpenApiYamlRenderer
from drf_spectacular.utils import extend_schema
from drf_spectacular.views import SpectacularAPIView
from rest_framework.request import Request

RENDERERS = {"yaml": OpenApiYamlRenderer, "json": OpenApiJsonRenderer}
_rendering = threading.Lock()


class SchemaView(SpectacularAPIView):
    """Sends the schema with its ETag; 304 to a client that has it."""

    @extend_schema(exclude=True)
    def get(self, request: Request, *args: Any, **kwargs: Any) -> HttpResponseBase:  # noqa: ARG002
        kind, media_type = request.accepted_renderer.format, request.accepted_renderer.media_type
        with _rendering:  # So that requests at the start wait for the first.
            text, etag = _rendered(kind)
        headers = {
            "Content-Disposition": f'inline; filename="Antenna.{kind}"',
            "Cache-Control": "no-cache",
            "ETag": etag,
        }
        answer = HttpResponse(text, content_type=media_type, headers=headers)
        return get_conditional_response(request._request, etag=etag, response=answer)


@cache
def _rendered(kind: str) -> tuple[bytes, str]:
    """Return the schema and its ETag."""
    text = RENDERERS[kind]().render(SchemaGenerator().get_schema(public=True))
    return text, f'"{hashlib.sha256(text).hexdigest()[:32]}"'
