"""Reading a worker's request body: bounded before it is read, checked by the wire's own models."""

import re
from typing import TypeVar

from django.conf import settings
from pydantic import BaseModel, ValidationError
from rest_framework import exceptions
from rest_framework.request import Request

from ami.jobs.api.errors import TooLarge

Model = TypeVar("Model", bound=BaseModel)

SMALL_BODY_BYTES = 1024**2
MOST_ERRORS = 20

#: An escaped NUL, which no database stores; not the six characters after an escaped backslash.
NUL = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")


def read(request: Request, model: type[Model], limit_bytes: int | None = None) -> Model:
    """Return the body as ``model``; ``limit_bytes`` is what a body of results may have unless given.

    Raises:
        TooLarge: 413, told from the Content-Length where there is one, else after reading one byte too many.
        rest_framework.exceptions.ValidationError: 400, {field: [message]}.
    """
    limit = limit_bytes if limit_bytes is not None else settings.ANTENNA_RESULT_MAX_BYTES
    length = request.META.get("CONTENT_LENGTH") or ""
    if length.isdecimal() and int(length) > limit:
        raise TooLarge(f"The body has {length} bytes; at most {limit} are taken. Send smaller batches.")
    # Read from the plain request: Django REST framework's parser would build the whole body twice.
    body = request._request.read(limit + 1)
    if len(body) > limit:
        raise TooLarge(f"The body has more than {limit} bytes. Send smaller batches.")
    return parse(body, model)


def parse(body: bytes, model: type[Model]) -> Model:
    """Return JSON bytes as ``model``.

    Raises:
        rest_framework.exceptions.ValidationError: with each wrong field, as a dotted path, and what is wrong.
    """
    if b"\\u0000" in body and NUL.search(body):
        raise exceptions.ValidationError({"body": ["Holds a NUL character (\\u0000), which no database stores."]})
    try:
        return model.model_validate_json(body or b"{}")
    except ValidationError as error:
        fields: dict[str, list[str]] = {}
        for item in error.errors(include_url=False, include_input=False, include_context=False)[:MOST_ERRORS]:
            fields.setdefault(".".join(map(str, item["loc"])) or "body", []).append(item["msg"])
        raise exceptions.ValidationError(fields) from error
