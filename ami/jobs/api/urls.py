"""The URLs of the jobs' API, below ``/api/v2/``."""

from typing import Any

from rest_framework.routers import BaseRouter

from ami.jobs.api.views import JobViewSet


def register(router: BaseRouter) -> None:
    """Register the jobs' view."""
    router.register("jobs", JobViewSet, basename="job")


urlpatterns: list[Any] = []
