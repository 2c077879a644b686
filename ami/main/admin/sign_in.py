"""The sign-in of the admin, with the same limits as the API's."""

from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.views.decorators.cache import never_cache

from ami.main import login_attempts
from ami.main.callers import address_of


@never_cache
def sign_in(request: HttpRequest) -> HttpResponse:
    """Show the form and check a password, unless the address or the account has been tried too often: 429."""
    if request.method == "POST":
        address = address_of(request)
        wait_seconds = login_attempts.count_address(address) or login_attempts.count_account(
            address, request.POST.get("username", "")
        )
        if wait_seconds:
            return _refused(request, wait_seconds)
    return admin.site.login(request)


def _refused(request: HttpRequest, wait_seconds: int) -> HttpResponse:
    context = {**admin.site.each_context(request), "title": "Too many attempts", "wait_seconds": wait_seconds}
    headers = {"Retry-After": str(wait_seconds)}
    return TemplateResponse(request, "main/sign_in_refused.html", context, status=429, headers=headers)
