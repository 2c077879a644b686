"""Parses JSON text into wire models part by part; the limits of one part bound the memory of the whole."""

import hashlib
import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, TypeVar

import msgspec
from django.conf import settings
from pydantic import Field, ValidationError, ValidatorFunctionWrapHandler, WrapValidator

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
    is_plain,
    layout_of,
)
from ami.ml.schemas import MAX_BATCH, PipelineTaskResult, ProcessingServiceClientInfo, ResultRequest, WireModel
from ami.ml.services.long_lists import CutLists

Model = TypeVar("Model", bound=WireModel)

MOST_ERRORS = 20
MOST_LONG_VALUES = 2_000_000
"""Most values in all long lists of a fully parsed text; six maps of 29,176 classes with seven values each fit."""


CHECKS = 1
"""Raise it with a check of the models that their JSON schema does not show."""


class WireError(ValueError):
    """The text does not match the model; ``fields`` maps dotted paths to messages, ``body`` is the text itself."""

    def __init__(self, fields: dict[str, list[str]]) -> None:
        first, messages = next(iter(fields.items()))
        super().__init__(f"{first}: {messages[0]}")
        self.fields = fields


@dataclass(frozen=True)
class PostedResult:
    """One valid item of a request: its reply subject and its original text."""

    reply_subject: str
    text: memoryview


@dataclass(frozen=True)
class Posted:
    """A valid request: its items, and the object with which the client describes itself."""

    results: list[PostedResult]
    client_info: dict[str, Any]


class _RawRequest(msgspec.Struct):
    """A request whose items stay text."""

    results: list[msgspec.Raw]


def _keep_cut(value: Any, handler: ValidatorFunctionWrapHandler) -> Any:
    number = cut_number(value)
    return handler(value) if number is None else number


class _Request(WireModel):
    """A `ResultRequest` whose items may be placeholders (numbers) of cut-out text."""

    results: list[Annotated[PipelineTaskResult, WrapValidator(_keep_cut)]] = Field(max_length=MAX_BATCH)
    client_info: ProcessingServiceClientInfo = Field(default_factory=dict)


@cache
def version() -> str:
    """Return a digest of the models of a result: what another version has validated is validated again."""
    schema = json.dumps([CHECKS, PipelineTaskResult.model_json_schema()], sort_keys=True)
    return hashlib.sha256(schema.encode()).hexdigest()[:16]


def bounds() -> Bounds:
    """Return the limits of one part from the settings."""
    return Bounds(settings.ANTENNA_RESULT_MAX_ELEMENTS, settings.ANTENNA_RESULT_MAX_DEPTH)


def parse(text: Text, model: type[Model], *, build: bool = True) -> Model:
    """Parse a text as ``model``; without ``build`` its long lists stay text, and ``text`` must not change afterwards.

    Raises:
        WireError: names each wrong field.
    """
    text = text or b"{}"
    if is_plain(text, bounds()):
        return _model(text, model, ())
    with _layout_errors():
        layout = layout_of(text, bounds(), _long_lists(model))
        if build:
            _refuse_many_values(layout)
    return _validated(layout, layout.outer, model, build=build)


def posted(text: Text) -> Posted:
    """Return a `ResultRequest`, its items validated one at a time; the caller must ``release()`` their texts.

    Raises:
        WireError: names each wrong field.
    """
    text = text or b"{}"
    if is_plain(text, bounds()):
        request = _model(text, ResultRequest, ())
        raw = msgspec.json.decode(text, type=_RawRequest).results
        pairs = zip(request.results, raw, strict=True)
        return Posted([PostedResult(item.reply_subject, memoryview(own)) for item, own in pairs], request.client_info)
    with _layout_errors():
        layout = layout_of(text, bounds(), _long_lists(PipelineTaskResult), items_in="results")
    outer = _validated(layout, layout.outer, _Request)
    return Posted(_cut_results(layout, outer.results), outer.client_info)


def _cut_results(layout: Layout, wanted: list[Any]) -> list[PostedResult]:
    results: list[PostedResult] = []
    errors: dict[str, list[str]] = {}
    for index, number in enumerate(wanted):
        part = layout.items[number]
        part.path = ("results", index)
        try:
            item = _validated(layout, part, PipelineTaskResult)
        except WireError as error:
            errors |= error.fields
        else:
            results.append(PostedResult(item.reply_subject, memoryview(layout.text)[part.start : part.end]))
        if len(errors) >= MOST_ERRORS:
            break
    if errors:
        raise WireError(errors)
    return results


def _long_lists(model: type[WireModel]) -> LongLists:
    return {path: KINDS[kind] for path, kind in model.long_lists.items()}


def _validated(layout: Layout, part: Part, model: type[Model], *, build: bool = False) -> Model:
    with _layout_errors():
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
