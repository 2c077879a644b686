"""Reads declared variables from an environment: the only parser of variables."""

from collections.abc import Mapping
from dataclasses import replace
from typing import TypeVar

from pydantic import ValidationError
from pydantic_core import ErrorDetails
from pydantic_settings import EnvSettingsSource

from ami.environment.declaration import Variable, Variables, of
from ami.environment.errors import EnvironmentRefused, did_you_mean

MOST_SHOWN = 60

Read = TypeVar("Read", bound=Variables)


def read(
    declared: type[Read], environ: Mapping[str, str], prefix: str = "", shown: Mapping[str, object] | None = None
) -> Read:
    """Return the values of ``declared``; an empty variable counts as one that is not set.

    ``prefix`` precedes the name of every field. ``shown`` has what a refusal names as the default, by field name, where
    that is not the declared one.

    Raises:
        EnvironmentRefused: with a sentence for each wrong variable, which never repeats a secret.
    """
    source = EnvSettingsSource(declared, case_sensitive=False, env_prefix=prefix.lower())
    given = {name.lower(): value.strip() for name, value in environ.items() if name.isupper()}
    source.env_vars = {name: value for name, value in given.items() if value}
    return build(declared, source(), prefix, shown)


def build(
    declared: type[Read],
    values: Mapping[str, object],
    prefix: str = "",
    shown: Mapping[str, object] | None = None,
) -> Read:
    """Return ``declared`` with these values by field name; refusals are those of `read`."""
    try:
        return declared(**values)
    except ValidationError as error:
        details = error.errors(include_url=False)
        raise EnvironmentRefused([_sentence(declared, prefix, detail, shown or {}) for detail in details]) from None


def _sentence(declared: type[Variables], prefix: str, detail: ErrorDetails, shown: Mapping[str, object]) -> str:
    if not detail["loc"]:  # A contradiction between variables: its validator wrote the whole sentence.
        return _written(detail)
    field = str(detail["loc"][0])
    variable = of(declared, field, prefix)
    variable = replace(variable, default=shown.get(field, variable.default))
    if detail["type"] == "value_error":
        return f"{variable.name} {_written(detail)}"
    return refusal(variable, detail["input"])


def _written(detail: ErrorDetails) -> str:
    return str(detail["ctx"]["error"]) if "ctx" in detail else detail["msg"]


def _shown(value: str) -> str:
    """Return a value in quotes, on one line and not longer than `MOST_SHOWN` characters."""
    short = value if len(value) <= MOST_SHOWN else f"{value[:MOST_SHOWN]}..."
    return f"'{short}'" if short.isprintable() else repr(short)


def refusal(variable: Variable, value: object) -> str:
    """Return the sentence for a value that is not one of those the variable may have."""
    shown = "wrong" if variable.secret else _shown(str(value))
    meant = did_you_mean(str(value), variable.choices) if variable.choices else ""
    return f"{variable.name} is {shown}; {variable.expected}.{meant}"
