"""Reads the JSON of ordinary requests: only what a database can hold and a list can show again."""

import json
import math
from typing import IO, Any

from rest_framework.exceptions import ParseError, ValidationError
from rest_framework.parsers import JSONParser

MAX_DEPTH = 32
TOO_DEEP = f"is nested more than {MAX_DEPTH} levels deep"
NO_TEXT = "holds a NUL character or half a character, which no database stores"


class BoundedJSONParser(JSONParser):
    """JSON without NaN, infinity, NUL or endless nesting; its size is bounded by DATA_UPLOAD_MAX_MEMORY_SIZE."""

    def parse(self, stream: IO[bytes], media_type: Any = None, parser_context: Any = None) -> Any:  # noqa: ARG002
        """Return the body's value.

        Raises:
            rest_framework.exceptions.ParseError: no JSON, or a number that is none.
            rest_framework.exceptions.ValidationError: naming the field that nests too deep or holds no text.
        """
        try:
            value = json.loads(stream.read().decode(), parse_constant=_no_number, parse_float=_finite)
        except (ValueError, RecursionError) as error:
            reason = TOO_DEEP if isinstance(error, RecursionError) else str(error)
            raise ParseError(f"JSON parse error - {reason}") from error
        for name, item in value.items() if isinstance(value, dict) else [("body", value)]:
            if wrong := _wrong(item):
                raise ValidationError({name[:100]: [f"{wrong[0].upper()}{wrong[1:]}."]})
        return value


def _no_number(text: str) -> float:
    raise ValueError(f"{text} is no number")


def _finite(text: str) -> float:
    value = float(text)
    return value if math.isfinite(value) else _no_number(text[:50])


def _wrong(item: Any) -> str:
    """Say what is wrong inside a list or an object; a text that is a field's whole value is the field's to check."""
    level = [item] if isinstance(item, (dict, list)) else []
    for _ in range(MAX_DEPTH):
        texts = [part for part in level if isinstance(part, str)]
        if any("\x00" in text or not _encodable(text) for text in texts):
            return NO_TEXT
        level = [inner for part in level for inner in _inside(part)]
        if not level:
            return ""
    return TOO_DEEP


def _inside(part: Any) -> list[Any]:
    if isinstance(part, dict):
        return [*part, *part.values()]
    return part if isinstance(part, list) else []


def _encodable(text: str) -> bool:
    return text.isascii() or not any("\ud800" <= character <= "\udfff" for character in text)
