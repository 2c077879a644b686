"""Who may do what in a project, decided per action of the API."""

from typing import Any

from django.db.models import Model, QuerySet
from rest_framework.permissions import SAFE_METHODS, BasePermission
from rest_framework.request import Request
from rest_framework.views import APIView

from ami.main.models import ApiToken, Detection, Project, User

MEMBER, OWNER, SUPERUSER = "member", "owner", "superuser"

#: What an action needs unless its view says otherwise in ``roles``.
DEFAULT_ROLES = {"destroy": OWNER}


class ProjectRole(BasePermission):
    """Grants an action on an object by the person's role in its project; a view's ``roles`` maps actions to roles.

    What a person may not even see is filtered out before, so that it answers 404 and not 403.
    """

    message = "Your role in this project does not allow this."

    def has_permission(self, request: Request, view: APIView) -> bool:  # noqa: ARG002
        """Let people in who are signed in; the object decides the rest."""
        return bool(request.user and request.user.is_authenticated)

    def has_object_permission(self, request: Request, view: APIView, obj: Any) -> bool:
        """Compare the person's role with the one that the action needs."""
        action = getattr(view, "action", None) or ""
        needed = {**DEFAULT_ROLES, **getattr(view, "roles", {})}.get(action, MEMBER)
        return has_role(request.user, project_of(obj), MEMBER if request.method in SAFE_METHODS else needed)


def is_worker(request: Request) -> bool:
    """Whether the request carries a worker's token."""
    return isinstance(request.auth, ApiToken) and request.auth.is_worker


def visible_projects(request: Request) -> "QuerySet[Project]":
    """Return the projects that a request reaches: the person's; with a worker's token those of them it is for."""
    projects: QuerySet[Project] = Project.objects.visible_to(request.user)
    if is_worker(request):
        return projects.filter(pk__in=ApiToken.projects.through.objects.filter(apitoken=request.auth).values("project"))
    return projects


def has_role(user: Any, project: Project | None, needed: str) -> bool:
    """Say whether ``user`` has the role in the project; a superuser has every role everywhere."""
    if not isinstance(user, User):
        return False
    if user.is_superuser:
        return True
    if project is None or needed == SUPERUSER:
        return False
    return project.owner_id == user.pk if needed == OWNER else project.has_member(user)


def project_of(obj: Model) -> Project | None:
    """Return the project that an object belongs to; None for what belongs to all, such as a taxon."""
    if isinstance(obj, Project):
        return obj
    if isinstance(obj, Detection):
        return obj.source_image.project
    return getattr(obj, "project", None)
