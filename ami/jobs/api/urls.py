"""URLs of the jobs API, below ``/api/v2/``."""

from django.urls import path
from rest_framework.routers import BaseRouter

from ami.jobs.api.capture_reprocess import ReprocessCaptureView
from ami.jobs.api.views import JobViewSet


def register(router: BaseRouter) -> None:
    router.register("jobs", JobViewSet, basename="job")


urlpatterns = [path("captures/<int:capture_id>/reprocess/", ReprocessCaptureView.as_view())]
