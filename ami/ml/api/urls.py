"""URLs of the pipeline API, below ``/api/v2/``."""

from django.urls import path
from rest_framework.routers import BaseRouter

from ami.ml.api import registration, views


def register(router: BaseRouter) -> None:
    router.register("ml/pipelines", views.PipelineViewSet, basename="pipeline")
    router.register("ml/algorithms", views.AlgorithmViewSet, basename="algorithm")
    router.register("ml/processing_services", views.ProcessingServiceViewSet, basename="processing-service")


urlpatterns = [
    path("projects/<int:project_id>/pipelines/", registration.ProjectPipelinesView.as_view()),
]
