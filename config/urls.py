"""Every URL of the web process."""

from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.urls import include, path
from django.views.generic import RedirectView
from rest_framework.routers import DefaultRouter

from ami.console import urls as console_urls
from ami.exports import api as exports_api
from ami.jobs.api import urls as jobs_urls
from ami.main.api import docs as api_docs
from ami.main.api import urls as main_urls
from ami.main.api.schema_document import SchemaView
from ami.ml.api import urls as ml_urls
from ami.telemetry.metrics.endpoint import metrics

MOTH = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32"><path fill="#3d9bd1" d="M16 14C9 3 2 5 2 10c0 6 7 6 '
    '11 8-5 1-7 4-5 7 3 3 7-1 8-5 1 4 5 8 8 5 2-3 0-6-5-7 4-2 11-2 11-8 0-5-7-7-14 4z"/></svg>'
)

handler500 = "ami.queues.middleware.failed_request"
router = DefaultRouter()
# JSON is all there is; `.json` behind an address would reach actions that know no other format.
router.include_format_suffixes = False
for app in (main_urls, ml_urls, jobs_urls, exports_api):
    app.register(router)


def live(_: HttpRequest) -> HttpResponse:
    """Answer that the web process runs; no service is queried."""
    return HttpResponse("ok\n", content_type="text/plain")


def favicon(_: HttpRequest) -> HttpResponse:
    """Send the icon of every page: a moth."""
    return HttpResponse(MOTH, content_type="image/svg+xml", headers={"Cache-Control": "public, max-age=86400"})


urlpatterns = [
    path("", RedirectView.as_view(pattern_name="admin:index")),
    path("favicon.ico", favicon, name="favicon"),
    path("livez", live),
    path("metrics", metrics, name="metrics"),
    # Before the admin, whose pages of the queues' models lie below the same address.
    path("admin/queues/", include(console_urls)),
    path("admin/", admin.site.urls),
    path("api/v2/schema/", SchemaView.as_view(), name="schema"),
    path("api/v2/docs/", include(api_docs.urlpatterns)),
    *(path("api/v2/", include(app.urlpatterns)) for app in (main_urls, ml_urls, jobs_urls, exports_api)),
    path("api/v2/", include(router.urls)),
]
