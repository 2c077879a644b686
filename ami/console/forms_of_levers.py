"""Levers on the console's lists: each a form that asks for the reason, and one function that runs what was posted."""

from collections.abc import Iterable
from typing import Any

from django.contrib import messages
from django.core.exceptions import BadRequest, PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.html import format_html

from ami.console.levers import Lever
from ami.queues.admin_site.operation_actions import expected
from ami.queues.wishes import Operator

SEE_OTHER = 303


def allowed(request: HttpRequest, levers: Iterable[Lever]) -> list[Lever]:
    """Return the levers that the user may pull; the page shows no other."""
    return [lever for lever in levers if request.user.has_perm(lever.needs)]


def pull(request: HttpRequest, levers: Iterable[Lever], name: str, back: str) -> HttpResponse:
    """Run the posted lever on what is called ``name``, say what happened, and lead back.

    Raises:
        BadRequest: no lever has this verb.
        PermissionDenied: the user may not.
    """
    lever = next((each for each in levers if each.verb == request.POST.get("verb")), None)
    if lever is None:
        raise BadRequest("There is no such lever on this page.")
    if not request.user.has_perm(lever.needs):
        raise PermissionDenied
    given = {field.name: str(request.POST.get(field.name, "")).strip() for field in lever.fields}
    why = str(request.POST.get("why", "")).strip()
    if lever.grave and not why:
        messages.error(request, "Give a reason: this cannot be undone.")
        return see_other(back)
    run(request, lever.verb, lambda: lever.operation(name, Operator(request.user, "admin"), why, given))
    return see_other(back)


def run(request: HttpRequest, verb: str, operation: Any) -> bool:
    """Run an operation that returns a sentence; show that, or why it was refused. Return whether it was done."""
    try:
        sentence = operation()
    except expected() as error:
        messages.error(request, f"{verb.capitalize()} was not done: {error}")
        return False
    messages.success(request, format_html("{}: {}", verb.capitalize(), sentence))
    return True


def see_other(address: str) -> HttpResponse:
    """Lead the browser to a page after a POST."""
    return HttpResponseRedirect(address, status=SEE_OTHER)
