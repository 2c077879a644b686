"""The JSON parser of ordinary requests: within the view's budget, and only values that a database can store."""

import json
import math
import re
from typing import IO, Any

from rest_framework.exceptions import ParseError, ValidationError
from rest_framework.parsers import BaseParser

from ami.main.api.budgets import TooManyElements, budget_of

NOT_STORABLE = "holds a NUL character or an unpaired surrogate, which no database stores"

#: The only spellings of them in valid UTF-8 and JSON.
SUSPECT = re.compile(rb"\\u(?:0000|[dD][89a-fA-F])")


class BoundedJSONParser(BaseParser):
    """JSON without NaN, infinity, NUL or unpaired surrogates, within the view's budget (``ami.main.api.budgets``).

    Not a `JSONParser`: Django REST framework reads the whole body before it calls one of those.
    """

    media_type = "application/json"

    def parse(self, stream: IO[bytes], media_type: Any = None, parser_context: Any = None) -> Any:  # noqa: ARG002
        """Return the body's value.

        Raises:
            ami.main.api.budgets.TooLarge: 413, more bytes than the budget.
            rest_framework.exceptions.ParseError: 400, not JSON, or NaN or infinity.
            rest_framework.exceptions.ValidationError: 400, too many elements, or a field that cannot be stored.
        """
        context = parser_context or {}
        request = context["request"]
        # Lets the middleware release the parsed body after the response (ami.main.services.request_body).
        request._request.parsed_by = request
        budget = budget_of(context.get("view"))
        body = budget.read(stream, str(request.META.get("CONTENT_LENGTH") or ""))
        try:
            budget.check(body)
            value = json.loads(body.decode(), parse_constant=_refuse_number, parse_float=_finite)
        except TooManyElements as error:
            raise ValidationError({"body": [f"The body {error}."]}) from None
        except ValueError as error:
            raise ParseError(f"JSON parse error - {error}") from None
        if SUSPECT.search(body):
            _refuse_unstorable_text(value)
        return value


def _refuse_number(text: str) -> float:
    raise ValueError(f"{text} is not a number")


def _finite(text: str) -> float:
    value = float(text)
    return value if math.isfinite(value) else _refuse_number(text[:50])


def _refuse_unstorable_text(value: Any) -> None:
    """Refuse NUL and unpaired surrogates in values and keys, naming the top-level field."""
    for name, item in value.items() if isinstance(value, dict) else [("body", value)]:
        if not _is_text(name):
            raise ValidationError({"body": [f"The name of a field {NOT_STORABLE}."]})
        if not all(map(_is_text, _texts(item))):
            raise ValidationError({name[:100]: [f"{NOT_STORABLE[0].upper()}{NOT_STORABLE[1:]}."]})


def _texts(item: Any) -> list[str]:
    """Return every string in ``item``, keys included; the budget bounds their number and depth."""
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
