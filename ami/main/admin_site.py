"""The admin site of this project, with the sign-in limits of the API."""

from typing import Any

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils.decorators import method_decorator
from django.views.decorators.cache import never_cache

from ami.main.services import login_attempts
from ami.main.services.client_address import address_of
from ami.queues.admin_site.site import AdminSite as GuardedSite

#: Of models whose name is a plural already.
PLURALS = {"LoginAttempts": "Login attempts", "Replay": "Replays of dead letters"}


class AdminSite(GuardedSite):
    """The guarded site; sign-in attempts are limited by address and by account. It is all the pages there are."""

    site_header = site_title = "Antenna"
    index_title = "Operations"
    site_url = None
    index_template = "main/index.html"

    def each_context(self, request: HttpRequest) -> dict[str, Any]:
        """Add what the head of every page leads to."""
        return {**super().each_context(request), "flower_url": settings.FLOWER_URL}

    def get_app_list(self, request: HttpRequest, app_label: str | None = None) -> list[Any]:
        """Name what Django would give a plural of its own."""
        apps: list[Any] = super().get_app_list(request, app_label)
        for model in (model for app in apps for model in app["models"]):
            model["name"] = PLURALS.get(model["object_name"], model["name"])
        return apps

    @method_decorator(never_cache)
    def login(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        """Show the form and check the password; answer 429 over the limit of the address or the account."""
        if request.method == "POST":
            address = address_of(request)
            wait_seconds = login_attempts.count_address(address) or login_attempts.count_account(
                address, request.POST.get("username", "")
            )
            if wait_seconds:
                return self._refused(request, wait_seconds)
        return super().login(request, extra_context)

    def _refused(self, request: HttpRequest, wait_seconds: int) -> HttpResponse:
        context = {**self.each_context(request), "title": "Too many attempts", "wait_seconds": wait_seconds}
        headers = {"Retry-After": str(wait_seconds)}
        return TemplateResponse(request, "main/sign_in_refused.html", context, status=429, headers=headers)
