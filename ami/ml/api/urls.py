"""The URLs of the API of pipelines, below ``/api/v2/``."""

from django.urls import path
from rest_framework.routers import BaseRouter

from ami.ml.api import registration, views


def register(router: BaseRouter) -> None:
    """Register the views of pipelines, algorithms and services."""
    router.register("ml/pipelines", views.PipelineViewSet, basename="pipeline")
    router.register("ml/algorithms", views.AlgorithmViewSet, basename="algorithm")
    router.register("ml/processing_services", views.ProcessingServiceViewSet, basename="processing-service")


urlpatterns = [
    path("projects/<int:project_id>/pipelines/", registration.ProjectPipelinesView.as_view()),
]
