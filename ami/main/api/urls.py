"""The URLs of the core's API, below ``/api/v2/``."""

from django.urls import path
from rest_framework.routers import BaseRouter

# ``schema`` tells drf-spectacular of our authentication.
from ami.main.api import (  # noqa: F401
    auth,
    captures,
    letters,
    occurrences,
    operations,
    projects,
    records,
    schema,
    states,
    stations,
    tokens,
)


def register(router: BaseRouter) -> None:
    """Register the core's views."""
    router.register("auth/tokens", tokens.ApiTokenViewSet, basename="token")
    router.register("projects", projects.ProjectViewSet, basename="project")
    router.register("deployments", stations.DeploymentViewSet, basename="deployment")
    router.register("events", stations.EventViewSet, basename="event")
    router.register("captures/collections", captures.CollectionViewSet, basename="collection")
    router.register("captures", captures.CaptureViewSet, basename="capture")
    router.register("detections", occurrences.DetectionViewSet, basename="detection")
    router.register("occurrences", occurrences.OccurrenceViewSet, basename="occurrence")
    router.register("queues", operations.QueueViewSet, basename="queue")
    router.register("workers", operations.WorkerViewSet, basename="worker")
    router.register("tasks", operations.TaskViewSet, basename="task")
    router.register("audit", records.AuditViewSet, basename="audit")
    router.register("failures", records.FailureViewSet, basename="failures")
    router.register("letters", letters.LetterViewSet, basename="letter")
    router.register("replays", letters.ReplayViewSet, basename="replay")
    router.register("states", states.StateViewSet, basename="state")
    router.register("disabled", states.DisabledViewSet, basename="disabled")
    router.register("taxa", occurrences.TaxonViewSet, basename="taxon")


urlpatterns = [
    path("auth/token/login/", auth.LoginView.as_view(), name="login"),
    path("auth/token/logout/", auth.LogoutView.as_view(), name="logout"),
]
