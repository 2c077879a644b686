"""What every list of the API shares: the scope of the user's projects, and filters."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from django.db import connections
from django.db.models import QuerySet
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter
from rest_framework.exceptions import ValidationError
from rest_framework.permissions import IsAuthenticated
from rest_framework.request import Request

from ami.main.api.pagination import BoundedPagination
from ami.main.api.parameters import KnownParameters, project_asked
from ami.main.models import Project
from ami.main.permissions import ProjectRole, is_worker, visible_projects
from ami.main.services import bounded_counts
from ami.main.services.bounded_counts import EXACT_UP_TO
from ami.main.services.keyset import Order
from ami.main.services.path_search import path_text

#: A list over more projects than this is one query: merging more scans costs more than it saves.
MOST_BRANCHES = 16

#: Lookups that leave a list in the order of its project's index.
RANGES = ("__gte", "__lt")

#: Lookups of texts. With fewer matches their own index is read once; with more, each project's in its order.
TEXTS = ("__icontains", "__istartswith")
MANY_MATCHES = 2 * EXACT_UP_TO


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
    path_text: OpenApiTypes.STR,
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
    text = project_asked(request) if narrowed else None
    if text is None:
        return projects
    try:
        return projects.filter(pk=whole_number(text))
    except ValueError as error:
        raise ValidationError({"project": [f"'{text[:50]}': {error}."]}) from error


class UsedInProjects:
    """A view over shared rows, of which users see those that their projects use."""

    def get_queryset(self) -> QuerySet[Any]:
        """Return the rows that the caller's projects use; a superuser sees all unless the list names a project."""
        rows: Any = super().get_queryset()  # type: ignore[misc]
        request: Request = self.request  # type: ignore[attr-defined]
        listed = self.action == "list"  # type: ignore[attr-defined]
        if request.user.is_superuser and not (listed and project_asked(request)):
            return rows
        return rows.used_in(projects_of(request, narrowed=listed).values("pk"))


class ProjectScoped(KnownParameters):
    """A view over the objects of the user's projects.

    ``project_lookup`` is the lookup from the model to its project, None for shared rows; ``filters`` maps a query
    parameter to a lookup and the parser of its value. ``large`` says that the table may have millions of rows: its list
    is read project by project, along an index that begins with the project.
    """

    permission_classes = (IsAuthenticated, ProjectRole)
    pagination_class = BoundedPagination
    project_lookup: str | None = "project"
    filters: Filters = {}
    large = False
    #: The actions that read the list.
    listed: tuple[str, ...] = ("list",)
    #: The querysets that together have the keys of the list, and their order; None for the queryset itself and its own.
    branches: list[QuerySet[Any]] | None = None
    order: Order | None = None
    #: The list without the condition on projects, and the keys of those; None: every project.
    of_every_project: QuerySet[Any]
    project_ids: list[int] | None = None
    reads = {
        "retrieve": ("project",),
        **dict.fromkeys(("image", "crop", "file"), ("project", "expires", "signature")),
    }
    # Digits only, or `captures/collections/` would match as the capture "collections".
    lookup_value_regex = r"\d{1,18}"

    def get_queryset(self) -> QuerySet[Any]:
        """Return the rows that the user may see; a list is filtered by its query parameters."""
        rows: QuerySet[Any] = super().get_queryset()  # type: ignore[misc]
        request: Request = self.request  # type: ignore[attr-defined]
        if getattr(self, "action", "") in self.listed:
            return self._listed(rows, request)
        if self.project_lookup:
            visible = projects_of(request, narrowed=True).values("pk")
            rows = rows.filter(**{f"{self.project_lookup}__in": visible})
        return rows

    def _listed(self, rows: QuerySet[Any], request: Request) -> QuerySet[Any]:
        lookups = self._filter_lookups(request)
        lookup = self.project_lookup
        if lookup is None:
            return rows.filter(**lookups)
        only = lookups.pop(self.filters["project"][0], None) if "project" in self.filters else None
        self.of_every_project = rows = rows.filter(**lookups)
        projects = self.project_ids = _project_ids(request, only)
        if projects is None:
            return rows
        # SQLite orders no parts of a union.
        mergeable = connections[rows.db].vendor == "postgresql" and 1 < len(projects) <= MOST_BRANCHES
        if self.large and mergeable and _keeps_order(rows, lookups):
            self.branches = [rows.filter(**{lookup: project}) for project in projects]
        return rows.filter(**{lookup: projects[0]} if len(projects) == 1 else {f"{lookup}__in": projects})

    def _filter_lookups(self, request: Request) -> dict[str, Any]:
        lookups, errors = {}, {}
        for name, (lookup, read) in self.filters.items():
            text = project_asked(request) if name == "project" else request.query_params.get(name)
            if text is None:
                continue
            try:
                lookups[lookup] = read(text)
            except ValueError as error:
                errors[name] = [f"'{text[:50]}': {error}."]
        if errors:
            raise ValidationError(errors)
        return lookups


def _keeps_order(rows: QuerySet[Any], lookups: dict[str, Any]) -> bool:
    """Whether a project's rows with these lookups are best read in the order of the list."""
    others = [name for name in lookups if not name.endswith(RANGES)]
    if not others:
        return True
    return all(name.endswith(TEXTS) for name in others) and bounded_counts.estimate(rows) > MANY_MATCHES


def _project_ids(request: Request, only: int | None) -> list[int] | None:
    """Return the keys of the user's projects, or of the one given if it is theirs; None for every project.

    Known keys in place of a subquery let the database choose a plan by how many rows those projects have.
    """
    if request.user.is_superuser and not is_worker(request):
        return None if only is None else [only]
    visible = visible_projects(request).order_by()
    if only is not None:
        visible = visible.filter(pk=only)
    return list(visible.values_list("pk", flat=True))
