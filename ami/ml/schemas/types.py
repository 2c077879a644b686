"""The types of the wire: their bounds, and the base of all models."""

from __future__ import annotations

import math
from datetime import datetime
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    WrapValidator,
)

MAX_BATCH = 1000
"""Maximum number of tasks handed out in one request; a client that asks for more gets the others in the next one."""

MOST_LONG_ENTRIES = 100_000
"""Maximum length of a list with one entry per class; 29,176 were seen."""

MAX_PIXELS = 10_000_000.0
EARLIEST_YEAR, LATEST_YEAR = 1900, 2200


def _finite(value: Any) -> Any:
    """Refuse NaN and infinity anywhere in an open value: they are not JSON, and no database stores them."""
    level = [value]
    while level:
        if any(isinstance(part, float) and not math.isfinite(part) for part in level):
            raise ValueError("must not hold NaN or an infinite number")
        parts = (part.values() if isinstance(part, dict) else part for part in level if isinstance(part, (dict, list)))
        level = [inner for part in parts for inner in part]
    return value


def _in_range(moment: datetime) -> datetime:
    """Refuse a time outside the years of cameras, or too near the limits to attach a station's zone."""
    if not EARLIEST_YEAR <= moment.year <= LATEST_YEAR:
        raise ValueError(f"must be of the years {EARLIEST_YEAR} to {LATEST_YEAR}")
    return moment


def _restore(value: Any, handler: ValidatorFunctionWrapHandler, info: ValidationInfo) -> Any:
    """Replace a placeholder by the list that was cut out of the text (`ami.ml.services.long_lists`)."""
    return handler(value) if info.context is None else info.context.restore(value, handler)


def _not_null(empty: type[Any]) -> BeforeValidator:
    """Read null as an empty value."""
    return BeforeValidator(lambda value: empty() if value is None else value)


Finite = AfterValidator(_finite)
MayBeLong = WrapValidator(_restore)
LongLists: TypeAlias = dict[tuple[str | int, ...], Literal["numbers", "texts", "objects"]]
"""Path of each long flat list in a text -> its kind; paths are keys, with 0 for every index."""
Moment: TypeAlias = Annotated[datetime, AfterValidator(_in_range)]
Pixels: TypeAlias = Annotated[float, Field(ge=-MAX_PIXELS, le=MAX_PIXELS)]
Version: TypeAlias = Annotated[int, Field(ge=-(2**31), lt=2**31)]
Name: TypeAlias = Annotated[str, Field(max_length=255)]
Key: TypeAlias = Annotated[str, Field(min_length=1, max_length=255)]
Url: TypeAlias = Annotated[str, Field(max_length=8192)]
PictureUrl: TypeAlias = Annotated[str, Field(max_length=16_384)]
"""A quoted path has up to nine characters for each of its 1,024."""
Text: TypeAlias = Annotated[str, Field(max_length=100_000)]
Subject: TypeAlias = Annotated[str, Field(max_length=1024, pattern=r"^[!-~]*$"), _not_null(str)]
"""A reply subject; empty if the client knows none."""
Labels: TypeAlias = Annotated[list[Name], Field(max_length=MOST_LONG_ENTRIES), MayBeLong]
Numbers: TypeAlias = Annotated[list[float], Field(max_length=MOST_LONG_ENTRIES), MayBeLong]
Config: TypeAlias = Annotated[dict[str, Any], Field(max_length=256), Finite]
ProcessingServiceClientInfo: TypeAlias = Annotated[dict[str, Any], Field(max_length=64), Finite, _not_null(dict)]
"""An open object with which a client describes itself (hostname, version, ...); not interpreted."""


class WireModel(BaseModel):
    """Base of all wire models: ignores unknown keys, refuses NaN and infinity, instances are immutable."""

    model_config = ConfigDict(
        extra="ignore", allow_inf_nan=False, frozen=True, protected_namespaces=(), coerce_numbers_to_str=True
    )
    long_lists: ClassVar[LongLists] = {}
    """Long flat lists that a text of this model may hold."""
