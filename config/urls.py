"""Every URL of the web process."""

from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.urls import include, path
from drf_spectacular.views import SpectacularAPIView
from rest_framework.routers import DefaultRouter

from ami.exports import api as exports_api
from ami.jobs.api import urls as jobs_urls
from ami.main.api import urls as main_urls
from ami.ml.api import urls as ml_urls

router = DefaultRouter()
# JSON is all there is; `.json` behind an address would reach actions that know no other format.
router.include_format_suffixes = False
for app in (main_urls, ml_urls, jobs_urls, exports_api):
    app.register(router)


def live(_: HttpRequest) -> HttpResponse:
    """Answer that the web process runs; no service is queried."""
    return HttpResponse("ok\n", content_type="text/plain")


urlpatterns = [
    path("livez", live),
    path("admin/", admin.site.urls),
    path("api/v2/schema/", SpectacularAPIView.as_view(), name="schema"),
    *(path("api/v2/", include(app.urlpatterns)) for app in (main_urls, ml_urls, jobs_urls, exports_api)),
    path("api/v2/", include(router.urls)),
]
