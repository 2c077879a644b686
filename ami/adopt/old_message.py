"""A message of an old queue, whose body is decompressed and decoded only when it is needed."""

from dataclasses import dataclass
from typing import Any

from kombu import serialization

from ami.adopt.becomes import Arguments, CannotRun
from ami.celery import decompression
from ami.celery.amqp_properties import UNREADABLE
from ami.celery.task_message import describe

#: The serializer that the old application used; no other can be read without running code.
ACCEPTED = "application/json"

LONGEST_ID = 255


@dataclass(frozen=True)
class OldMessage:
    """One delivery: ``body`` is as it came, still compressed; ``tag`` acknowledges it."""

    queue: str
    tag: int
    redelivered: bool
    body: bytes
    properties: dict[str, Any]

    @classmethod
    def of(cls, queue: str, raw: Any) -> "OldMessage":
        """Return a message of py-amqp's, which decodes a body where it can."""
        body = raw.body.encode() if isinstance(raw.body, str) else bytes(raw.body)
        return cls(queue, raw.delivery_tag, bool(raw.delivery_info.get("redelivered")), body, dict(raw.properties))

    @property
    def headers(self) -> dict[str, Any]:
        return self.properties.get("application_headers") or {}

    @property
    def content_type(self) -> str | None:
        return self.properties.get("content_type")

    @property
    def content_encoding(self) -> str | None:
        return self.properties.get("content_encoding")

    @property
    def task(self) -> str:
        """The name of its task; empty when it is not a message of Celery's protocol 2."""
        name = self.headers.get("task")
        return name if isinstance(name, str) else ""

    @property
    def task_id(self) -> str:
        return one_line(self.headers.get("id") or self.properties.get("correlation_id") or "", LONGEST_ID)

    @property
    def unreadable(self) -> str:
        """Why its properties cannot be read, or nothing."""
        return str(self.properties.get(UNREADABLE, ""))

    def decoded(self, max_body_bytes: int) -> tuple[list[Any], Arguments, dict[str, Any]]:
        """Return args, kwargs and embed.

        Raises:
            CannotRun: the body is too large, damaged, or not one of Celery's protocol 2.
        """
        body = self._decompressed(max_body_bytes)
        if len(body) > max_body_bytes:
            raise CannotRun("its body is too large", f"more than {max_body_bytes} bytes")
        try:
            found = serialization.loads(body, self.content_type, self.content_encoding or "utf-8", accept={ACCEPTED})
        except MemoryError:
            raise
        except Exception as error:  # The serializer's types have decoders that raise anything.
            raise CannotRun("its body cannot be decoded", describe(error)) from error
        if not isinstance(found, list) or len(found) != 3:
            raise CannotRun("its body is not a list of args, kwargs and embed")
        args, kwargs, embed = found
        if not isinstance(args, list) or not isinstance(kwargs, dict):
            raise CannotRun("its body is not a list of args, kwargs and embed")
        return args, kwargs, embed if isinstance(embed, dict) else {}

    def _decompressed(self, max_body_bytes: int) -> bytes:
        compression = self.headers.get("compression")
        if not compression:
            return self.body
        try:
            return decompression.decoder(str(compression), max_body_bytes)(self.body)
        except decompression.DecompressionError as error:
            raise CannotRun("its body cannot be decompressed", str(error)) from error


def one_line(value: Any, most: int) -> str:
    """Return a value of a message as bounded text that every database and every terminal takes."""
    return "".join(character if character.isprintable() else "?" for character in str(value)[:most])


def by_name(args: list[Any], kwargs: Arguments, parameters: tuple[str, ...]) -> Arguments:
    """Return a call's arguments by name.

    Raises:
        CannotRun: there are more of them than parameters, or one is given twice.
    """
    named = dict(zip(parameters, args, strict=False))
    if len(args) > len(parameters) or named.keys() & kwargs.keys():
        raise CannotRun("its arguments are not those of its task")
    return {**named, **kwargs}
