"""What every list of the API shares: bounded pages, the scope of the user's projects, and filters."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from django.db.models import QuerySet
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter
from rest_framework.exceptions import ValidationError
from rest_framework.pagination import LimitOffsetPagination
from rest_framework.permissions import IsAuthenticated
from rest_framework.request import Request

from ami.main.models import Project
from ami.main.permissions import ProjectRole, visible_projects

MAX_PER_PAGE = 500
LARGEST_OFFSET = 10_000_000


class BoundedPagination(LimitOffsetPagination):
    """Pages of at most ``MAX_PER_PAGE`` rows, offsets of at most ``LARGEST_OFFSET``."""

    default_limit = 50
    max_limit = MAX_PER_PAGE

    def get_offset(self, request: Request) -> int:
        """Return the offset.

        Raises:
            ValidationError: it is larger than ``LARGEST_OFFSET``.
        """
        offset = super().get_offset(request)
        if offset > LARGEST_OFFSET:
            raise ValidationError({"offset": [f"Must be at most {LARGEST_OFFSET}; narrow the list with filters."]})
        return offset


def whole_number(text: str) -> int:
    """Parse a filter value such as a primary key."""
    if not text.isascii() or not text.isdecimal() or len(text) > 18:
        raise ValueError("must be a whole number")
    return int(text)


def share(text: str) -> float:
    """Parse a filter value between 0 and 1."""
    value = float(text)
    if not 0.0 <= value <= 1.0:
        raise ValueError("must be between 0 and 1")
    return value


def moment(text: str) -> datetime:
    """Parse an ISO 8601 time; without a zone it is UTC, because a list may span stations."""
    value = datetime.fromisoformat(text)
    return value if value.tzinfo else value.replace(tzinfo=UTC)


def words(text: str) -> str:
    """Parse a search text."""
    if len(text) > 200 or "\x00" in text:
        raise ValueError("must be at most 200 characters without NUL")
    return text


Filters = Mapping[str, tuple[str, Callable[[str], Any]]]

TYPES = {
    whole_number: OpenApiTypes.INT,
    share: OpenApiTypes.FLOAT,
    moment: OpenApiTypes.DATETIME,
    words: OpenApiTypes.STR,
}


def parameters(filters: Filters) -> list[OpenApiParameter]:
    """Return the query parameters of a list for the OpenAPI schema."""
    return [OpenApiParameter(name, TYPES[read]) for name, (_, read) in filters.items()]


PROJECT = OpenApiParameter("project", OpenApiTypes.INT, description="only what this project uses")


def projects_of(request: Request, *, narrowed: bool) -> QuerySet[Project]:
    """Return the user's projects; with ``narrowed`` only the one in ``?project=``, if given.

    Raises:
        rest_framework.exceptions.ValidationError: the parameter is not a whole number.
    """
    projects = visible_projects(request).order_by()
    text = request.query_params.get("project") if narrowed else None
    if text is None:
        return projects
    try:
        return projects.filter(pk=whole_number(text))
    except ValueError as error:
        raise ValidationError({"project": [f"'{text[:50]}': {error}."]}) from error


class ProjectScoped:
    """A view over the objects of the user's projects.

    ``project_lookup`` is the lookup from the model to its project, None for shared rows; ``filters`` maps a query
    parameter to a lookup and the parser of its value.
    """

    permission_classes = (IsAuthenticated, ProjectRole)
    pagination_class = BoundedPagination
    project_lookup: str | None = "project"
    filters: Filters = {}
    # Digits only, or `captures/collections/` would match as the capture "collections".
    lookup_value_regex = r"\d{1,18}"

    def get_queryset(self) -> QuerySet[Any]:
        """Return the rows that the user may see; a list is filtered by its query parameters."""
        rows: QuerySet[Any] = super().get_queryset()  # type: ignore[misc]
        request: Request = self.request  # type: ignore[attr-defined]
        if self.project_lookup:
            visible = visible_projects(request).order_by().values("pk")
            rows = rows.filter(**{f"{self.project_lookup}__in": visible})
        return rows.filter(**self._filter_lookups(request)) if getattr(self, "action", "") == "list" else rows

    def _filter_lookups(self, request: Request) -> dict[str, Any]:
        lookups, errors = {}, {}
        for name, (lookup, read) in self.filters.items():
            if (text := request.query_params.get(name)) is None:
                continue
            try:
                lookups[lookup] = read(text)
            except ValueError as error:
                errors[name] = [f"'{text[:50]}': {error}."]
        if errors:
            raise ValidationError(errors)
        return lookups
