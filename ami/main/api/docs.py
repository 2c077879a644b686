"""The page of the API's documentation, drawn from the schema by Swagger UI, which is vendored."""

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import path, reverse
from django.views.decorators.http import require_safe


@require_safe
def show(request: HttpRequest) -> HttpResponse:
    """Show the page, which loads the schema: it has the schema's permission."""
    answer = TemplateResponse(request, "main/api_docs.html", {"schema": reverse("schema")})
    # Swagger UI's style sheet has its icons in itself.
    answer.picture_sources = ["data:"]  # type: ignore[attr-defined]
    return answer


#: With their namespace, by which their responses have the policy of pages.
urlpatterns: tuple[list[Any], str] = ([path("", show, name="show")], "api_docs")
