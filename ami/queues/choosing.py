"""The rows that an admin action is about: a person who chose rows that are gone by now is told so."""

from typing import Any

from django.contrib import messages
from django.http import HttpRequest

GONE = "None of the selected rows exists any more; nothing was done. Reload the list and choose again."


def chosen(request: HttpRequest, queryset: Any) -> list[Any]:
    """Return the selected rows, or values of them; warn the person where none is left."""
    rows = list(queryset)
    if not rows:
        messages.warning(request, GONE)
    return rows
