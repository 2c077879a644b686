"""How a variable is declared: a pydantic field with bounds, a line of documentation and what else its readers need."""

from collections.abc import Iterator
from dataclasses import dataclass
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BeforeValidator, Field
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict


def _entries(value: object) -> object:
    return tuple(entry.strip() for entry in value.split(",") if entry.strip()) if isinstance(value, str) else value


#: A list separated by commas.
Names = Annotated[tuple[str, ...], BeforeValidator(_entries)]


class Variables(BaseSettings):
    """The variables of one concern: each field is the variable of the same name in capitals.

    Read them with `ami.environment.reader.read`; ``Variables(...)`` takes values, never the environment. The class's
    docstring is the concern's title in `.env.example`.
    """

    model_config = SettingsConfigDict(frozen=True, extra="forbid", enable_decoding=False)

    @classmethod
    def settings_customise_sources(  # type: ignore[override]
        cls, *_: Any, init_settings: PydanticBaseSettingsSource, **_others: Any
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Return the values given to the class as its only source."""
        return (init_settings,)


def variable(
    default: Any,
    line: str,
    *,
    low: float | None = None,
    high: float | None = None,
    secret: bool = False,
    example: str = "",
    written: bool = False,
    needed_by: tuple[str, ...] = (),
    by_image: bool = False,
    schemes: tuple[str, ...] = (),
    words: tuple[str, ...] = (),
) -> Any:
    """Return a pydantic field.

    ``line`` documents it in one sentence. ``low`` and ``high`` are inclusive bounds. A ``secret`` is never repeated,
    and may be given as the path of a file in ``<NAME>_FILE``. ``example`` is shown where there is no default.
    ``written``: `.env.example` has it without a ``#``. ``needed_by`` names the processes that production does not
    start without it. ``by_image``: the image sets it for every container. ``schemes`` are those of
    a URL. ``words`` may stand in place of a number; their reader takes them out of the environment first.
    """
    facts: Any = {"secret": secret, "example": example, "written": written, "needed_by": needed_by}
    facts |= {"by_image": by_image, "schemes": schemes, "words": words}
    return Field(default, description=line, ge=low, le=high, repr=not secret, json_schema_extra={"facts": facts})


@dataclass(frozen=True)
class Variable:
    """One declared variable, as renderers and refusals see it. ``choices`` are its only values, where it has few."""

    name: str
    line: str
    kind: type
    default: Any
    low: float | None
    high: float | None
    choices: tuple[str, ...]
    secret: bool
    example: str
    written: bool
    needed_by: tuple[str, ...]
    by_image: bool
    schemes: tuple[str, ...]
    words: tuple[str, ...]

    @property
    def default_text(self) -> str:
        """Return the default as it is written in an environment; empty if there is none."""
        if self.default is None:
            return ""
        if isinstance(self.default, bool):
            return str(int(self.default))
        if isinstance(self.default, tuple):
            return ",".join(self.default)
        return f"{self.default:g}" if isinstance(self.default, float) else str(self.default)

    @property
    def file(self) -> str:
        """Return the name of the variable with the path of a file that holds this one's value."""
        return f"{self.name}_FILE"

    @property
    def interpolation(self) -> str:
        """Return what a compose file writes for this variable or its default."""
        return f"${{{self.name}:-{self.default_text}}}"

    @property
    def expected(self) -> str:
        """Return which values are accepted, for the middle of a sentence: ``it must be a number from 1 to 100``."""
        default = f" (default {self.default_text})" if self.default_text and not self.secret else ""
        if self.choices:
            return f"use one of {', '.join(self.choices)}{default}"
        if self.kind is bool:
            return f"use 1 or 0{default}"
        number = "a whole number" if self.kind is int else "a number"
        words = "".join(f" or '{word}'" for word in self.words)
        return f"it must be {number} from {self.low:g} to {self.high:.15g}{words}{default}"


def variables(declared: type[BaseSettings], prefix: str = "") -> Iterator[Variable]:
    """Yield every variable of a concern, in the order of its fields."""
    for field, info in declared.model_fields.items():
        yield _variable(f"{prefix}{field.upper()}", info)


def of(declared: type[BaseSettings], field: str, prefix: str = "") -> Variable:
    """Return the variable of one field."""
    return _variable(f"{prefix}{field.upper()}", declared.model_fields[field])


def _variable(name: str, info: FieldInfo) -> Variable:
    extra = info.json_schema_extra
    facts: Any = extra["facts"] if isinstance(extra, dict) else {}
    kind, choices = _kind(info.annotation)
    bounds = {key: getattr(bound, key) for bound in info.metadata for key in ("ge", "le") if hasattr(bound, key)}
    return Variable(
        name=name,
        line=info.description or "",
        kind=kind,
        default=info.default,
        low=bounds.get("ge"),
        high=bounds.get("le"),
        choices=choices,
        **facts,
    )


def _kind(annotation: Any) -> tuple[type, tuple[str, ...]]:
    """Return the type of a field without ``None``, and the values of a ``Literal``."""
    if get_origin(annotation) in (Union, UnionType):
        (annotation,) = (each for each in get_args(annotation) if each is not type(None))
    if get_origin(annotation) is Literal:
        return str, get_args(annotation)
    return get_origin(annotation) or annotation, ()
