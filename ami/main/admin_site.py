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


class AdminSite(GuardedSite):
    """The guarded site; sign-in attempts are limited by address and by account. It is all the pages there are."""

    site_header = site_title = "Antenna"
    index_title = "Operations"
    site_url = None
    index_template = "main/index.html"

    def index(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> TemplateResponse:
        """Show where to look first above the models."""
        return super().index(request, {**(extra_context or {}), "flower_url": settings.FLOWER_URL})

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
