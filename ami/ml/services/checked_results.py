"""Reads results that the API has validated: only what is saved, without validating it again."""

from datetime import datetime
from functools import lru_cache
from typing import Any

import msgspec
from pydantic import ConfigDict, TypeAdapter

#: The times on the wire are texts or numbers, and pydantic has accepted them; many rows have the same one.
_moment: TypeAdapter[datetime] = TypeAdapter(datetime)
_numbers: TypeAdapter[list[float]] = TypeAdapter(list[float])
_names: TypeAdapter[list[str]] = TypeAdapter(list[str], config=ConfigDict(coerce_numbers_to_str=True))
_floats = msgspec.json.Decoder(list[float])
_texts = msgspec.json.Decoder(list[str])

NOTHING = (msgspec.Raw(), msgspec.Raw(b"null"))


@lru_cache(maxsize=4096)
def moment(value: str | int | float) -> datetime:
    """Return the time as the wire models parse it; without a zone it is the station's."""
    return _moment.validate_python(value)


def numbers(text: msgspec.Raw) -> list[float]:
    """Return a list of numbers, which may be texts of numbers."""
    try:
        return _floats.decode(text)
    except msgspec.ValidationError:
        return _numbers.validate_json(bytes(text))


def texts(text: msgspec.Raw) -> list[str]:
    """Return a list of texts, which may be numbers."""
    try:
        return _texts.decode(text)
    except msgspec.ValidationError:
        return _names.validate_json(bytes(text))


class CheckedBox(msgspec.Struct, frozen=True):
    """A `BoundingBox`."""

    x1: float
    y1: float
    x2: float
    y2: float


class CheckedAlgorithm(msgspec.Struct, frozen=True):
    """The identity of an `AlgorithmReference`."""

    key: str


class CheckedClassification(msgspec.Struct, frozen=True):
    """A `ClassificationResponse`; its long lists stay text until they are read, each time anew."""

    classification: str
    algorithm: CheckedAlgorithm
    when: str | int | float = msgspec.field(name="timestamp")
    scores_text: msgspec.Raw = msgspec.field(name="scores", default=msgspec.Raw(b"[]"))
    logits_text: msgspec.Raw = msgspec.field(name="logits", default=msgspec.Raw())
    labels_text: msgspec.Raw = msgspec.field(name="labels", default=msgspec.Raw())
    terminal: bool = True

    @property
    def timestamp(self) -> datetime:
        return moment(self.when)

    @property
    def scores(self) -> list[float]:
        return numbers(self.scores_text)

    @property
    def logits(self) -> list[float]:
        return [] if self.logits_text in NOTHING else numbers(self.logits_text)

    @property
    def labels(self) -> list[str]:
        return [] if self.labels_text in NOTHING else texts(self.labels_text)


class CheckedDetection(msgspec.Struct, frozen=True):
    """A `DetectionResponse`."""

    source_image_id: str
    algorithm: CheckedAlgorithm
    when: str | int | float = msgspec.field(name="timestamp")
    bbox: CheckedBox | None = None
    classifications: list[CheckedClassification] = []

    @property
    def timestamp(self) -> datetime:
        return moment(self.when)


class CheckedImage(msgspec.Struct, frozen=True):
    """The identity of a `SourceImageResponse`."""

    id: str


class CheckedResponse(msgspec.Struct, frozen=True):
    """A `PipelineResultsResponse`."""

    pipeline: str
    total_time: msgspec.Raw
    source_images: list[CheckedImage]
    detections: list[CheckedDetection]


class _Item(msgspec.Struct, frozen=True):
    result: CheckedResponse


_item = msgspec.json.Decoder(_Item)


def read(text: Any) -> CheckedResponse | None:
    """Return the response of a validated item; None for an error, and for what only the wire models can read.

    The text must not change while the response is used.
    """
    try:
        return _item.decode(text).result
    except msgspec.MsgspecError:
        return None
