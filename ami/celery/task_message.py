"""What a task message must look like before Celery may see it: its content, its headers and its body."""

import math
import time
from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from json import JSONDecodeError
from typing import Any

from celery.utils.time import maybe_iso8601
from kombu.exceptions import DecodeError

from ami.celery.amqp_properties import UNREADABLE

#: The largest body, after decompression. What is larger is stored and its key is sent; parsed it takes up to 40 times
#: as much in the worker and again in the child.
MAX_BODY_BYTES = 4 * 1024**2

#: Celery's representations of arguments have 1024 characters, AMQP's own texts 255.
MAX_TEXT, MAX_ID = 64 * 1024, 255
MAX_DEPTH = 20
#: Of all headers together; a frame of RabbitMQ's has 128 KiB, and the reason of a dead letter must still fit in.
MAX_HEADERS_BYTES = 100_000

#: No countdown is longer, and no time limit: RabbitMQ's delay exchanges end at eight years.
MAX_AHEAD_SECONDS = MAX_LIMIT_SECONDS = 9 * 366 * 86_400
MAX_RETRIES = 1_000_000
#: The largest key of a row.
MAX_KEY = 2**63 - 1

#: ``codecs`` knows more of them, among them some that decompress.
ENCODINGS = ("utf-8", "utf8", "us-ascii", "ascii")

PLAIN = (str, bytes, int, float, bool, Decimal, datetime, type(None))


class MalformedMessage(ValueError):
    """A message that is not a proper task message; the text says why, and quotes none of its arguments.

    ``remedy`` is for its publisher.
    """

    def __init__(self, text: str, remedy: str = "Store it, and send its key.") -> None:
        super().__init__(text)
        self.remedy = remedy


def check(message: Any, tasks: Collection[str]) -> None:
    """Refuse a received message that Celery could not start as a task, or that would harm the worker.

    ``tasks`` are the names that the worker knows. Afterwards ``message.payload`` is decoded.

    Raises:
        MalformedMessage: with the first fault found.
    """
    headers = message.headers
    if unreadable := message.properties.get(UNREADABLE):
        raise MalformedMessage(f"its properties cannot be read: {unreadable}")
    check_value("headers", headers, 0)
    body = _decoded(message)
    if "task" in headers and isinstance(body, dict) and "args" in body:
        fields = {**body, **headers}  # Of protocols 1 and 2 at once, which Celery accepts.
    elif "task" in headers:
        check_shape(body)
        fields = headers
    else:
        if not isinstance(body, dict) or "task" not in body:
            raise MalformedMessage("neither its headers nor its body names a task")
        fields = body
    if fields is not headers:
        check_shape([fields.get("args", []), fields.get("kwargs", {}), fields])
    check_fields(fields)
    if fields["task"] not in tasks:
        raise MalformedMessage(f"the task {quoted(fields['task'])} is not registered in this worker")


def check_fields(fields: Mapping[str, Any]) -> None:
    """Refuse fields of a message that Celery reads, or this project. Raises MalformedMessage."""
    for name, check_field in _FIELDS.items():
        check_field(name, fields.get(name))


def _decoded(message: Any) -> Any:
    size = len(message.body or b"")
    if size > MAX_BODY_BYTES:
        raise MalformedMessage(f"its body has {size} bytes; at most {MAX_BODY_BYTES} are accepted")
    content_type = message.content_type
    if message.accept is not None and content_type not in message.accept:
        accepted = " or ".join(sorted(message.accept))
        raise MalformedMessage(f"its content type is {quoted(content_type)}, not {accepted}")
    encoding = message.content_encoding
    if encoding is not None and encoding.lower() not in ENCODINGS and _is_text(content_type):
        raise MalformedMessage(f"its content encoding is {quoted(encoding)}, not utf-8")
    try:
        return message.payload
    except Exception as error:  # The serializer's types have decoders that raise anything.
        if isinstance(error, MemoryError):
            raise
        raise MalformedMessage(f"its body cannot be decoded: {describe(error)}") from error


def _is_text(content_type: str | None) -> bool:
    return content_type == "application/json"


def describe(error: BaseException) -> str:
    """Return what kind of error it is, and its text where that quotes nothing of a message.

    kombu raises a `DecodeError` of its own while it handles the error that tells more.
    """
    if isinstance(error, DecodeError) and error.__context__ is not None:
        error = error.__context__
    if isinstance(error, (JSONDecodeError, UnicodeDecodeError, RecursionError)):
        return f"{type(error).__name__}: {error}"
    return type(error).__name__


def quoted(value: Any) -> str:
    text = ascii(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _fault(name: str, value: Any, expected: str) -> MalformedMessage:
    return MalformedMessage(f"header '{name}' is {quoted(value)}, not {expected}", f"Give {expected}.")


def check_value(name: str, value: Any, depth: int) -> None:
    """Refuse a header that is nested too deep, too long, or of a type that no header has. Raises MalformedMessage."""
    if depth > MAX_DEPTH:
        raise MalformedMessage(f"header {quoted(name)} is nested deeper than {MAX_DEPTH} levels")
    if isinstance(value, (str, bytes)):
        if len(value) > MAX_TEXT:
            raise MalformedMessage(
                f"header {quoted(name)} has {len(value)} characters; at most {MAX_TEXT} are accepted"
            )
    elif isinstance(value, PLAIN):
        if not _fits_amqp(value):
            raise MalformedMessage(f"header {quoted(name)} is {quoted(value)}, which AMQP cannot carry", "Give text.")
    elif isinstance(value, Mapping):
        for key, each in value.items():
            _check_name(key)
            check_value(key if depth == 0 else name, each, depth + 1)
    elif isinstance(value, (list, tuple)):
        for each in value:
            check_value(name, each, depth + 1)
    else:
        raise MalformedMessage(f"header {quoted(name)} is a {type(value).__name__}", "Give text, a number or a list.")


def _fits_amqp(value: Any) -> bool:
    """Whether AMQP has a number, which a broker would refuse otherwise: of 64 bits, and finite."""
    if isinstance(value, int):
        return -(2**63) <= value < 2**63
    return not isinstance(value, float) or math.isfinite(value)


def _check_name(name: Any) -> None:
    if not isinstance(name, str):
        raise MalformedMessage(f"header {quoted(name)} has a name that is not text", "Give text.")
    if (size := len(name.encode(errors="replace"))) > MAX_ID:
        raise MalformedMessage(f"header {quoted(name)} has a name of {size} bytes; at most {MAX_ID} are accepted")


def check_shape(body: Any) -> None:
    """Refuse a body that is not args, kwargs and what follows. Raises MalformedMessage."""
    if not isinstance(body, (list, tuple)) or len(body) != 3:
        raise MalformedMessage(f"its body is {_shape(body)}, not a list of args, kwargs and embed")
    args, kwargs, embed = body
    if not isinstance(args, (list, tuple)):
        raise MalformedMessage(f"its args are {_shape(args)}, not a list")
    if not isinstance(kwargs, dict):
        raise MalformedMessage(f"its kwargs are {_shape(kwargs)}, not an object")
    if embed is None:
        return
    if not isinstance(embed, dict):
        raise MalformedMessage(f"its embed is {_shape(embed)}, not an object")
    for name in ("callbacks", "errbacks", "chain"):
        signatures = embed.get(name)
        if signatures is not None and not (
            isinstance(signatures, (list, tuple)) and all(map(_is_signature, signatures))
        ):
            raise MalformedMessage(f"its {name} are not a list of signatures", "Give signatures.")
    if (chord := embed.get("chord")) is not None and not _is_signature(chord):
        raise MalformedMessage("its chord is not a signature", "Give a signature.")


def _shape(value: Any) -> str:
    return f"a list of {len(value)}" if isinstance(value, list) else f"of type {type(value).__name__}"


def _is_signature(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("task"), str)


def _clean_text(name: str, value: Any, longest: int = MAX_ID) -> None:
    if not isinstance(value, str) or not value:
        raise _fault(name, value, "text")
    if len(value) > longest or not value.isprintable():
        raise _fault(name, value, f"printable text of at most {longest} characters")


def _optional_text(name: str, value: Any) -> None:
    if value is not None and value != "":
        _clean_text(name, value)


def _any_text(name: str, value: Any) -> None:
    if not isinstance(value, (str, type(None))):
        raise _fault(name, value, "text")


def _is_number(value: Any, most: float) -> bool:
    return (
        isinstance(value, (int, float, Decimal))
        and not isinstance(value, bool)
        and math.isfinite(value)
        and 0 <= value <= most
    )


def _count(name: str, value: Any) -> None:
    if value is not None and not (_is_number(value, MAX_RETRIES) and int(value) == value):
        raise _fault(name, value, f"a whole number from 0 to {MAX_RETRIES}")


def _whole(name: str, value: Any) -> None:
    if value is not None and not (isinstance(value, int) and _is_number(value, MAX_KEY)):
        raise _fault(name, value, f"a whole number from 0 to {MAX_KEY}")


def _seconds(name: str, value: Any) -> None:
    if value is not None and not _is_number(value, math.inf):
        raise _fault(name, value, "a number of seconds")


def _time_limits(name: str, value: Any) -> None:
    if value is None:
        return
    if not isinstance(value, (list, tuple)) or len(value) != 2:
        raise _fault(name, value, "a list of two")
    if not all(limit is None or _is_number(limit, MAX_LIMIT_SECONDS) for limit in value):
        raise _fault(name, value, "two numbers of seconds")


def _moment(name: str, value: Any) -> float | None:
    """Return a moment in epoch seconds."""
    if value is None:
        return None
    try:
        moment = maybe_iso8601(value)
        moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        return float(moment.astimezone(UTC).timestamp())
    except (AttributeError, OverflowError, TypeError, ValueError):
        raise _fault(name, value, "a moment in ISO 8601") from None


def seconds_ahead(message: Any) -> float:
    """Return in how many seconds a message's task is due; 0 or less when it is, or has no ETA.

    Raises:
        MalformedMessage: the ETA is not a moment.
    """
    due = _moment("eta", message.headers.get("eta"))
    return 0.0 if due is None else due - time.time()


def has_expired(message: Any) -> bool:
    """Whether a worker would drop a message because the time in ``expires`` has passed.

    Raises:
        MalformedMessage: that is not a moment.
    """
    last = _moment("expires", message.headers.get("expires"))
    return last is not None and last <= time.time()


def _near_moment(name: str, value: Any) -> None:
    moment = _moment(name, value)
    if moment is not None and moment > time.time() + MAX_AHEAD_SECONDS:
        raise _fault(name, value, f"a moment within {MAX_AHEAD_SECONDS // 86_400} days")


def _texts(name: str, value: Any) -> None:
    if value is not None and not (isinstance(value, (list, tuple)) and all(isinstance(each, str) for each in value)):
        raise _fault(name, value, "a list of texts")


def _object(name: str, value: Any) -> None:
    if not isinstance(value, (dict, type(None))):
        raise _fault(name, value, "an object")


#: What Celery 5.7 reads (https://docs.celeryq.dev/en/stable/internals/protocol.html), and what this project adds.
_FIELDS: dict[str, Callable[[str, Any], Any]] = {
    "task": _clean_text,
    "id": _clean_text,
    "shadow": _optional_text,
    "root_id": _optional_text,
    "parent_id": _optional_text,
    "group": _optional_text,
    "taskset": _optional_text,
    "group_index": _count,
    "retries": _count,
    "replaced_task_nesting": _count,
    "timelimit": _time_limits,
    "expires": _moment,
    "eta": _near_moment,
    "argsrepr": _any_text,
    "kwargsrepr": _any_text,
    "origin": _any_text,
    "lang": _any_text,
    "stamped_headers": _texts,
    "stamps": _object,
    "headers": _object,
    "antenna_origin": _any_text,
    "antenna_published_at": _seconds,
    "antenna_publish_id": _any_text,
    "antenna_letter": _whole,
    "antenna_admission": _optional_text,
    "antenna_starts": _count,
}
