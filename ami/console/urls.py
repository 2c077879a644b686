"""The addresses of the console, each behind the staff's sign-in."""

from ami.console import list_urls

app_name = "console"
urlpatterns = [*list_urls.urlpatterns]
