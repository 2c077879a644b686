"""Reads the JSON of ordinary requests within its budget: only what a database can hold and a list can show again."""

import json
import math
import re
from typing import IO, Any

from rest_framework.exceptions import ParseError, ValidationError
from rest_framework.parsers import BaseParser

from ami.main.api.budgets import TooManyElements, budget_of

NO_TEXT = "holds a NUL character or half a character, which no database stores"

#: The only ways in which valid UTF-8 and JSON can still spell them.
SUSPECT = re.compile(rb"\\u(?:0000|[dD][89a-fA-F])")


class BoundedJSONParser(BaseParser):
    """JSON without NaN, infinity, NUL or half a character, within the budget of the view (``ami.main.api.budgets``).

    Not a `JSONParser`: Django REST framework reads the whole body before it asks one of those.
    """

    media_type = "application/json"

    def parse(self, stream: IO[bytes], media_type: Any = None, parser_context: Any = None) -> Any:  # noqa: ARG002
        """Return the body's value.

        Raises:
            ami.main.api.budgets.TooLarge: 413, more bytes than the budget has.
            rest_framework.exceptions.ParseError: 400, no JSON, or a number that is none.
            rest_framework.exceptions.ValidationError: 400, too many elements, or naming the field that holds no text.
        """
        context = parser_context or {}
        request = context["request"]
        # So that it can be let go with its answer (ami.main.services.request_body).
        request._request.parsed_by = request
        budget = budget_of(context.get("view"))
        body = budget.read(stream, str(request.META.get("CONTENT_LENGTH") or ""))
        try:
            budget.check(body)
            value = json.loads(body.decode(), parse_constant=_no_number, parse_float=_finite)
        except TooManyElements as error:
            raise ValidationError({"body": [f"The body {error}."]}) from None
        except ValueError as error:
            raise ParseError(f"JSON parse error - {error}") from None
        if SUSPECT.search(body):
            _refuse_no_text(value)
        return value


def _no_number(text: str) -> float:
    raise ValueError(f"{text} is no number")


def _finite(text: str) -> float:
    value = float(text)
    return value if math.isfinite(value) else _no_number(text[:50])


def _refuse_no_text(value: Any) -> None:
    """Refuse a NUL or half a character anywhere, in keys too, with the name of the field that holds it."""
    for name, item in value.items() if isinstance(value, dict) else [("body", value)]:
        if not _is_text(name):
            raise ValidationError({"body": [f"The name of a field {NO_TEXT}."]})
        if not all(map(_is_text, _texts(item))):
            raise ValidationError({name[:100]: [f"{NO_TEXT[0].upper()}{NO_TEXT[1:]}."]})


def _texts(item: Any) -> list[str]:
    """Return every text in ``item``, keys included; the budget bounds its depth and number."""
    texts, level = [], [item]
    while level:
        texts += [part for part in level if isinstance(part, str)]
        level = [inner for part in level for inner in _inside(part)]
    return texts


def _inside(part: Any) -> list[Any]:
    if isinstance(part, dict):
        return [*part, *part.values()]
    return part if isinstance(part, list) else []


def _is_text(text: str) -> bool:
    return "\x00" not in text and (text.isascii() or not any("\ud800" <= each <= "\udfff" for each in text))
