"""Project roles and the permissions of API actions."""

from typing import Any

from django.db.models import Model, QuerySet
from rest_framework.permissions import SAFE_METHODS, BasePermission
from rest_framework.request import Request
from rest_framework.views import APIView

from ami.main.models import ApiToken, Detection, Project, User

MEMBER, OWNER, SUPERUSER = "member", "owner", "superuser"

#: The roles that actions need, unless the view's ``roles`` has another.
DEFAULT_ROLES = {"destroy": OWNER}


class ProjectRole(BasePermission):
    """Grants an action on an object by the user's role in its project; a view's ``roles`` maps actions to roles.

    The queryset of a view leaves out what the user may not see, so that it is a 404 and not a 403.
    """

    message = "Your role in this project does not allow this."

    def has_permission(self, request: Request, view: APIView) -> bool:  # noqa: ARG002
        return bool(request.user and request.user.is_authenticated)

    def has_object_permission(self, request: Request, view: APIView, obj: Any) -> bool:
        action = getattr(view, "action", None) or ""
        needed = {**DEFAULT_ROLES, **getattr(view, "roles", {})}.get(action, MEMBER)
        return has_role(request.user, project_of(obj), MEMBER if request.method in SAFE_METHODS else needed)


def is_worker(request: Request) -> bool:
    """Whether the request carries a worker's token."""
    return isinstance(request.auth, ApiToken) and request.auth.is_worker


def visible_projects(request: Request) -> "QuerySet[Project]":
    """Return the user's projects; with a worker's token only those of them in the token."""
    projects: QuerySet[Project] = Project.objects.visible_to(request.user)
    if is_worker(request):
        return projects.filter(pk__in=ApiToken.projects.through.objects.filter(apitoken=request.auth).values("project"))
    return projects


def has_role(user: Any, project: Project | None, needed: str) -> bool:
    """Whether ``user`` has the role in the project; a superuser has every role."""
    if not isinstance(user, User):
        return False
    if user.is_superuser:
        return True
    if project is None or needed == SUPERUSER:
        return False
    return project.owner_id == user.pk if needed == OWNER else project.has_member(user)


def project_of(obj: Model) -> Project | None:
    """Return the project of an object; None for shared ones, such as a taxon."""
    if isinstance(obj, Project):
        return obj
    if isinstance(obj, Detection):
        return obj.source_image.project
    return getattr(obj, "project", None)
