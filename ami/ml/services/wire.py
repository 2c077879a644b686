"""Parses JSON text into wire models part by part; the limits of one part bound the memory of the whole."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec
from django.conf import settings
from pydantic import TypeAdapter, ValidationError

from ami.main.services.json_layout import (
    KINDS,
    Bounds,
    Layout,
    LayoutError,
    LongLists,
    Part,
    Path,
    Text,
    cut_number,
    layout_of,
)
from ami.ml.schemas import (
    PipelineResultsError,
    PipelineTaskResult,
    ProcessingServiceClientInfo,
    Subject,
    WireModel,
)
from ami.ml.services.long_lists import CutLists

Model = TypeVar("Model", bound=WireModel)

MOST_ERRORS = 20
MOST_LONG_VALUES = 2_000_000
"""Most values in all long lists of a fully parsed text; six maps of 29,176 classes with seven values each fit."""


class WireError(ValueError):
    """The text does not match the model; ``fields`` maps dotted paths to messages, ``body`` is the text itself."""

    def __init__(self, fields: dict[str, list[str]]) -> None:
        first, messages = next(iter(fields.items()))
        super().__init__(f"{first}: {messages[0]}")
        self.fields = fields


@dataclass(frozen=True)
class Names:
    """What a result names: its pipeline, algorithms and images, and the configuration that it was made with."""

    pipeline: str
    algorithms: frozenset[str]
    images: frozenset[str]
    config: dict[str, Any] | None = None

    @classmethod
    def of(cls, response: Any) -> "Names":
        """Return the names in a `PipelineResultsResponse`."""
        algorithms = {detection.algorithm.key for detection in response.detections}
        algorithms |= {each.algorithm.key for detection in response.detections for each in detection.classifications}
        images = {picture.id for picture in response.source_images}
        images |= {detection.source_image_id for detection in response.detections}
        config = getattr(response, "config", None)
        return cls(response.pipeline, frozenset(algorithms), frozenset(images), config)


@dataclass(frozen=True)
class PostedResult:
    """One valid item of a request: its reply subject, its original text, and its names.

    An error has no names; ``failed_image`` is the image that it names, empty if it names none.
    """

    reply_subject: str
    text: memoryview
    names: Names | None = None
    failed_image: str = ""

    @property
    def images(self) -> frozenset[str]:
        """The images that it names."""
        return self.names.images if self.names else frozenset({self.failed_image} - {""})


@dataclass(frozen=True)
class WrongResult:
    """One item that is not a result: its reply subject, as far as it can be read, and what is wrong."""

    reply_subject: str
    reason: str


@dataclass(frozen=True)
class Posted:
    """A request: its items in order, and the object with which the client describes itself."""

    results: list[PostedResult | WrongResult]
    client_info: dict[str, Any]


class _RawItem(msgspec.Struct):
    """An item of which only the reply subject is read."""

    reply_subject: msgspec.Raw = msgspec.Raw(b'""')


class _Request(WireModel):
    """A `ResultRequest` whose items are placeholders (numbers) of cut-out text, or wrong."""

    results: list[Any]
    client_info: Any = None


_raw_item: msgspec.json.Decoder[_RawItem] = msgspec.json.Decoder(_RawItem)
_subject: TypeAdapter[str] = TypeAdapter(Subject)
_client_info: TypeAdapter[dict[str, Any]] = TypeAdapter(ProcessingServiceClientInfo)


def bounds() -> Bounds:
    """Return the limits of one part from the settings."""
    return Bounds(settings.ANTENNA_RESULT_MAX_ELEMENTS, settings.ANTENNA_RESULT_MAX_DEPTH)


def parse(text: Text, model: type[Model], *, build: bool = True) -> Model:
    """Parse a text as ``model``; without ``build`` its long lists stay text, and ``text`` must not change afterwards.

    Raises:
        WireError: names each wrong field.
    """
    text = text or b"{}"
    with _layout_errors():
        layout = layout_of(text, bounds(), _long_lists(model))
        if build:
            _refuse_many_values(layout)
    return _validated(layout, layout.outer, model, build=build)


def posted(text: Text) -> Posted:
    """Return a `ResultRequest`, its items validated one at a time; the caller must ``release()`` their texts.

    A wrong item leaves the others as they are, because a client drops a batch that is refused.

    Raises:
        WireError: the text is no list of results; names the field.
    """
    text = text or b"{}"
    with _layout_errors():
        layout = layout_of(text, bounds(), _long_lists(PipelineTaskResult), items_in="results")
    outer = _validated(layout, layout.outer, _Request)
    items = [_cut_item(layout, index, value) for index, value in enumerate(outer.results)]
    return Posted(items, _described(outer.client_info))


def _posted_item(item: PipelineTaskResult, text: memoryview) -> PostedResult:
    if isinstance(item.result, PipelineResultsError):
        return PostedResult(item.reply_subject, text, failed_image=item.result.image_id or "")
    return PostedResult(item.reply_subject, text, Names.of(item.result))


def _cut_item(layout: Layout, index: int, value: Any) -> PostedResult | WrongResult:
    number = cut_number(value)
    if number is None:
        return WrongResult("", f"results.{index}: Input should be an object")
    part = layout.items[number]
    part.path = ("results", index)
    text = memoryview(layout.text)[part.start : part.end]
    try:
        return _posted_item(_validated(layout, part, PipelineTaskResult), text)
    except WireError as error:
        with text:
            return WrongResult(_subject_in(text), str(error))


def _subject_in(text: memoryview) -> str:
    """Return the reply subject of a wrong item; empty if that is wrong, too."""
    try:
        return _subject.validate_json(bytes(_raw_item.decode(text).reply_subject))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, ValidationError):
        return ""


def _described(client_info: Any) -> dict[str, Any]:
    """Return what a client says about itself; nothing if that is not an object of its size."""
    try:
        return _client_info.validate_python(client_info)
    except ValidationError:
        return {}


def _long_lists(model: type[WireModel]) -> LongLists:
    return {path: KINDS[kind] for path, kind in model.long_lists.items()}


def _validated(layout: Layout, part: Part, model: type[Model], *, build: bool = False) -> Model:
    with _layout_errors():
        if part.wrong:
            raise LayoutError(*part.wrong)
        skeleton = layout.skeleton(part)
    return _model(skeleton, model, part.path, CutLists(layout.text, part.cuts, build))


def _model(text: Text, model: type[Model], path: Path, cuts: CutLists | None = None) -> Model:
    try:
        return model.model_validate_json(text, context=cuts)
    except ValidationError as error:
        raise WireError(_messages(error, path)) from None


def _messages(error: ValidationError, path: Path) -> dict[str, list[str]]:
    fields: dict[str, list[str]] = {}
    items: Iterable[Any] = error.errors(include_url=False, include_input=False, include_context=False)[:MOST_ERRORS]
    for item in items:
        fields.setdefault(".".join(map(str, (*path, *item["loc"]))) or "body", []).append(item["msg"])
    return fields


@contextmanager
def _layout_errors() -> Iterator[None]:
    try:
        yield
    except LayoutError as error:
        raise WireError({error.field: [str(error)]}) from None


def _refuse_many_values(layout: Layout) -> None:
    # One value per comma, and three more per object: even an empty one takes more memory than a number.
    text = layout.text
    values = sum(
        text.count(b",", cut.start, cut.end) + 3 * text.count(b"{", cut.start, cut.end) for cut in layout.outer.cuts
    )
    if values > MOST_LONG_VALUES:
        message = f"More than {MOST_LONG_VALUES} values in all category maps; send fewer pipelines at a time."
        raise LayoutError(("pipelines",), message)
