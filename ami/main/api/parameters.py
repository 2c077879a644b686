"""Query parameters that nobody reads: an error where the answer would be taken for another one, else a warning."""

import difflib
import logging
from collections.abc import Iterable, Mapping
from typing import Any

from rest_framework.exceptions import ValidationError
from rest_framework.permissions import SAFE_METHODS
from rest_framework.request import Request
from rest_framework.response import Response

logger = logging.getLogger(__name__)

PAGES = frozenset({"limit", "page_size", "offset", "cursor"})
EVERYWHERE = frozenset({"format"})
WRITES = frozenset({"start_now", "no_async", "project", "project_id"})

#: Names in one answer.
MOST_NAMED = 20

TRUE, FALSE = frozenset({"1", "true", "t", "yes", "y", "on"}), frozenset({"", "0", "false", "f", "no", "n", "off"})


class KnownParameters:
    """A view that says which query parameters it does not read.

    They are refused in a write, and where ``is_strict`` says so: a client that sends one expects another answer. Other
    reads answer with a ``Warning`` header (RFC 7234, 5.5) and write a line to the log. ``reads`` maps an action to the
    parameters that it reads besides the filters, those of pages, and ``EVERYWHERE``.
    """

    reads: Mapping[str, Iterable[str]] = {}

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """Check the parameters after authentication and permissions.

        Raises:
            rest_framework.exceptions.ValidationError: a parameter is unknown; each is named with the nearest one.
        """
        super().initial(request, *args, **kwargs)  # type: ignore[misc]
        self.warnings: list[str] = []
        if not hasattr(self, str(request.method).lower()):
            return  # A 405.
        known = self.known_parameters(request)
        unknown = {name: _sentence(name, known) for name in list(request.query_params) if name not in known}
        if unknown and (request.method not in SAFE_METHODS or self.is_strict(request)):
            named = list(unknown.items())[:MOST_NAMED]
            raise ValidationError({name[:100]: [sentence] for name, sentence in named})
        if unknown:
            named_here = ", ".join(map(repr, list(unknown)[:MOST_NAMED]))
            logger.warning(
                "Unknown parameters of %s: %s", request.path, named_here[:1000], extra={"path": request.path}
            )
            self.warnings += list(unknown.values())[:MOST_NAMED]
        if request.method not in SAFE_METHODS and flag(request, "no_async"):
            self.warnings.append("no_async has no effect: the job runs in the queue.")

    def is_strict(self, request: Request) -> bool:  # noqa: ARG002
        """Whether a read with an unknown parameter is refused."""
        return False

    def known_parameters(self, request: Request) -> frozenset[str]:
        """Return the parameters that this request may have."""
        action = getattr(self, "action", "") or ""
        known = EVERYWHERE | frozenset(self.reads.get(action, ()))
        if request.method not in SAFE_METHODS:
            known |= WRITES
        elif action == "list":
            known |= PAGES | frozenset(getattr(self, "filters", ()))
        return known | {"project_id"} if "project" in known else known

    def finalize_response(self, request: Request, response: Response, *args: Any, **kwargs: Any) -> Response:
        """Add the warnings."""
        final: Response = super().finalize_response(request, response, *args, **kwargs)  # type: ignore[misc]
        if warnings := getattr(self, "warnings", None):
            final["Warning"] = ", ".join(f'299 antenna "{_quoted(text)}"' for text in warnings)
        return final


def flag(request: Request, name: str) -> bool:
    """Return whether a parameter is switched on; it is off where it is missing.

    Raises:
        rest_framework.exceptions.ValidationError: it is neither on nor off.
    """
    text = request.query_params.get(name, "").lower()
    if text not in TRUE | FALSE:
        raise ValidationError({name: [f"'{text[:50]}': must be true or false."]})
    return text in TRUE


def project_asked(request: Request) -> str | None:
    """Return the project in the query: ``project``, or ``project_id`` as some clients write it.

    Raises:
        rest_framework.exceptions.ValidationError: the two differ.
    """
    names = [request.query_params[name] for name in ("project", "project_id") if name in request.query_params]
    if len(set(names)) > 1:
        raise ValidationError({"project_id": ["Differs from project."]})
    return names[0] if names else None


def _sentence(name: str, known: frozenset[str]) -> str:
    near = difflib.get_close_matches(name[:100], sorted(known), 1, 0.5)
    meant = f"; do you mean '{near[0]}'?" if near else f". Known: {', '.join(sorted(known))}."
    return f"Unknown parameter '{name[:100]}'{meant}"


def _quoted(text: str) -> str:
    """Return a text for a quoted part of a header: printable ASCII without quotes."""
    return "".join(letter if " " <= letter <= "~" and letter not in '"\\' else "?" for letter in text)
