"""The addresses of the console, below /admin/queues/ beside those of the admin's models."""

from django.urls import path

from ami.console import list_urls
from ami.console.page import guarded
from ami.console.pages.lever import LeverPage
from ami.console.pages.overview import OverviewPage
from ami.console.pages.peek import PeekPage
from ami.console.pages.queue import QueuePage, SeriesPage

app_name = "console"
urlpatterns = [
    path("", guarded(OverviewPage), name="overview"),
    path("queue/<str:queue>/", guarded(QueuePage), name="queue"),
    path("queue/<str:queue>/series/", guarded(SeriesPage), name="series"),
    path("queue/<str:queue>/peek/", guarded(PeekPage), name="peek"),
    path("lever/<slug:verb>/<path:target>/", guarded(LeverPage), name="lever"),
    *list_urls.urlpatterns,
]
