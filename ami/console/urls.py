"""The addresses of the console, below /admin/queues/ beside those of the admin's models."""

from django.urls import path

from ami.console import list_urls
from ami.console.page import staff
from ami.console.pages.lever import LeverPage
from ami.console.pages.overview import OverviewPage
from ami.console.pages.peek import PeekPage
from ami.console.pages.queue import QueuePage, SeriesPage

app_name = "console"
urlpatterns = [
    path("", staff(OverviewPage.as_view()), name="overview"),
    path("queue/<str:queue>/", staff(QueuePage.as_view()), name="queue"),
    path("queue/<str:queue>/series/", staff(SeriesPage.as_view()), name="series"),
    path("queue/<str:queue>/peek/", staff(PeekPage.as_view()), name="peek"),
    path("lever/<slug:verb>/<path:target>/", staff(LeverPage.as_view()), name="lever"),
    *list_urls.urlpatterns,
]
