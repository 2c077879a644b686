"""Refuses to publish what every worker would bury (`ami.celery.task_message`), for messages and for rows."""

import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from math import isfinite
from typing import Any

from kombu import compression
from kombu.exceptions import EncodeError
from kombu.utils import json

from ami.celery.decompression import BOUNDED
from ami.celery.task_message import (
    MAX_AHEAD_SECONDS,
    MAX_BODY_BYTES,
    MAX_HEADERS_BYTES,
    MalformedMessage,
    check_fields,
    check_shape,
    check_value,
    quoted,
)

#: A worker's parent hands the arguments to its child by pickle, which ends at about 470 levels.
MAX_BODY_DEPTH = 400
SMALLER = "Store what is larger, and send its key."


class MessageRefused(EncodeError, ValueError):
    """A task that was not published: workers would bury it. The text names the field, its value and the remedy."""


def seconds_ahead(task: str, options: dict[str, Any]) -> float:
    """Take countdown and ETA out of the options; return the seconds from now, 0 without them.

    Raises:
        MessageRefused: that is no time, or too far ahead.
    """
    eta, countdown = options.pop("eta", None), options.pop("countdown", None)
    name, given = ("countdown", countdown) if eta is None else ("eta", eta)
    try:
        seconds = float(countdown or 0) if eta is None else _moment(eta).timestamp() - time.time()
    except (AttributeError, OverflowError, TypeError, ValueError):
        seconds = float("nan")
    if not isfinite(seconds) or seconds > MAX_AHEAD_SECONDS:
        days = MAX_AHEAD_SECONDS // 86_400
        raise _refusal(task, f"{name} is {quoted(given)}", f"Give a time at most {days} days ahead.")
    return seconds


def check_expires(task: str, expires: Any) -> None:
    """Refuse a time of expiry that no message can have.

    Raises:
        MessageRefused: that is no number of seconds and no moment.
    """
    try:
        if isinstance(expires, (int, float)):
            datetime.now(UTC) + timedelta(seconds=expires)
        elif expires is not None:
            _moment(expires).timestamp()
    except (AttributeError, OverflowError, TypeError, ValueError):
        fault = f"expires is {quoted(expires)}"
        raise _refusal(task, fault, "Give a number of seconds, or a moment.") from None


def check(task: str, headers: Mapping[str, Any], body: Any, options: Mapping[str, Any]) -> None:
    """Refuse a message as a worker would; ``options`` are those of its publisher.

    Raises:
        MessageRefused: with the first fault found.
    """
    try:
        check_value("headers", headers, 0)
        check_fields(headers)
        check_shape(body)
    except MalformedMessage as fault:
        raise _refusal(task, str(fault), fault.remedy) from None
    if len(repr(headers)) > MAX_HEADERS_BYTES // 4:
        size = sum(len(str(value).encode()) for value in headers.values())
        if size > MAX_HEADERS_BYTES:
            raise _refusal(task, f"its headers have {size} bytes; at most {MAX_HEADERS_BYTES} are sent", SMALLER)
    _check_encoding(task, options)
    check_body(task, body)


def check_body(task: str, body: Any) -> None:
    """Refuse arguments, and what is to follow, that are too large or nested too deep.

    Raises:
        MessageRefused: they are. What is no JSON is refused by who serializes it.
    """
    try:
        text = json.dumps(body)
    except RecursionError:
        text = "[" * (MAX_BODY_DEPTH + 1)
    except Exception:
        return
    if (size := len(text) if text.isascii() else len(text.encode())) > MAX_BODY_BYTES:
        raise _refusal(task, f"its body has {size} bytes; at most {MAX_BODY_BYTES} are accepted", SMALLER)
    if text.count("[") + text.count("{") > MAX_BODY_DEPTH and _is_deep(body):
        raise _refusal(task, f"its body is nested deeper than {MAX_BODY_DEPTH} levels", "Send it as text.")


def _check_encoding(task: str, options: Mapping[str, Any]) -> None:
    serializer, method = options.get("serializer"), options.get("compression")
    if serializer not in (None, "json", "application/json"):
        raise _refusal(task, f"serializer is {quoted(serializer)}", "Give json.")
    if method and compression.get_encoder(method)[1] not in BOUNDED:
        known = " or ".join(sorted(each.rpartition("x-")[2] for each in BOUNDED))
        raise _refusal(task, f"compression is {quoted(method)}", f"Give {known}.")


def _is_deep(body: Any) -> bool:
    level = [body]
    for _ in range(MAX_BODY_DEPTH + 1):
        lists = [each.values() if isinstance(each, Mapping) else each for each in level]
        level = [each for values in lists for each in values if isinstance(each, (list, tuple, Mapping))]
    return bool(level)


def _moment(value: Any) -> datetime:
    moment = datetime.fromisoformat(value) if isinstance(value, str) else value
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _refusal(task: str, fault: str, remedy: str) -> MessageRefused:
    return MessageRefused(f"{quoted(task)} was not published, since workers would bury it: {fault}. {remedy}")
