"""Reads and checks the whole environment of a process at once."""

import sys
from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any

from ami.celery.beat_variables import BeatVariables
from ami.environment import names
from ami.environment.declaration import Variable, Variables, of, variables
from ami.environment.errors import EnvironmentRefused
from ami.environment.reader import read
from ami.environment.secret_files import PLACEHOLDER, placeholder_refusal, read_files
from ami.governor.settings import GovernorVariables
from ami.telemetry.variables import TelemetryVariables
from ami.topology.image import Image
from ami.topology.overrides import Overrides, prefix
from ami.topology.process import Process
from ami.topology.table import ROWS
from ami.topology.topology import Routing, switch
from ami.topology.workload import Workload
from config.schema.addresses import Addresses
from config.schema.alerts import Alerts
from config.schema.compose import Compose
from config.schema.development import Development
from config.schema.earlier import MISTAKEN, SUCCESSORS
from config.schema.files import Files
from config.schema.monitoring import Monitoring
from config.schema.services import Services
from config.schema.tasks import Tasks
from config.schema.urls import wrong_url
from config.schema.web import Web


class Environment(
    Addresses, Web, Files, Tasks, Monitoring, Alerts, Routing, Process, BeatVariables, TelemetryVariables, Development
):
    """What processes of ours read, but for the numbers of a queue and the governor."""


#: Each concern of `.env.example`, in its order.
CONCERNS: tuple[type[Variables], ...] = (
    Addresses,
    Image,
    Compose,
    Web,
    Files,
    Routing,
    Tasks,
    Monitoring,
    Alerts,
    Process,
    BeatVariables,
    TelemetryVariables,
    GovernorVariables,
    Development,
)

#: Prefixes that others use, too: only what is nearly a name of ours is refused.
SHARED_PREFIXES = ("CELERY_", "GOVERNOR_", "MEMORY_")


def load(environ: MutableMapping[str, str], rows: tuple[Workload, ...] = ROWS) -> Environment:
    """Return the values of this environment; secrets in files are put into it, what nothing reads is reported.

    Raises:
        EnvironmentRefused: with a sentence for each variable that is wrong or that nothing reads.
    """
    sentences = [*unknown(environ, rows)]
    try:
        read_files([each.name for each in secrets()], environ)
        values = read(Environment, environ)
        sentences += filter(None, (_wrong_address(values, each) for each in variables(Environment)))
    except EnvironmentRefused as error:
        sentences += error.sentences
    if sentences:
        raise EnvironmentRefused(sentences)
    suspected = names.suspected(_ours(environ), known(rows), SHARED_PREFIXES)
    for line in (*names.superseded(environ, SUCCESSORS), *suspected):
        print(f"Configuration: {line}", file=sys.stderr)
    return values


def declared() -> dict[str, Variable]:
    """Return every variable by field name, but for the numbers of a queue and the services' accounts."""
    return {each.name.lower(): each for concern in CONCERNS for each in variables(concern)}


def shared() -> Iterator[Variable]:
    """Yield what every process of a deployment may read."""
    for concern in (Addresses, Web, Files, Tasks, Monitoring, Alerts, Routing):
        yield from variables(concern)
    yield from switches()


def switches(rows: tuple[Workload, ...] = ROWS) -> Iterator[Variable]:
    """Yield the variables that switch on the rows which are off by default."""
    return (switch(row) for row in rows if row.enabled_by)


def title(concern: type[Variables]) -> str:
    """Return the title of a concern in what is rendered: the first line of its docstring."""
    return (concern.__doc__ or "").partition("\n")[0]


def of_workers() -> Iterator[Variable]:
    """Yield the governor's variables for all queues."""
    return variables(GovernorVariables)


def secrets() -> Iterator[Variable]:
    """Yield the variables that ``<NAME>_FILE`` may give as a file, of Antenna's own processes."""
    return (
        each for concern in (Addresses, Files, Tasks, Monitoring, Alerts) for each in variables(concern) if each.secret
    )


def unknown(environ: Mapping[str, str], rows: tuple[Workload, ...] = ROWS) -> Iterator[str]:
    """Yield a sentence for each variable that nothing reads and that was meant for us."""
    for mistaken, meant in MISTAKEN.items():
        if environ.get(mistaken):
            yield f"{mistaken} is not a variable that anything reads. Did you mean '{meant}'?"
    yield from names.unknown(_ours(environ), known(rows), SHARED_PREFIXES)


def _ours(environ: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environ.items() if name not in (*MISTAKEN, *SUCCESSORS)}


def known(rows: tuple[Workload, ...] = ROWS) -> frozenset[str]:
    """Return the names of all variables that something reads."""
    fixed = {each.name for concern in (*CONCERNS, Services) for each in variables(concern)}
    files = {each.file for each in (*secrets(), *variables(Services)) if each.secret}
    of_rows = {each.name for row in rows for each in of_row(row)}
    return frozenset({*fixed, *files, *of_rows, *(each.name for each in switches(rows))})


def of_row(row: Workload) -> Iterator[Variable]:
    """Yield the variables of one queue: its numbers, and the governor's settings for it alone."""
    for concern in (Overrides, GovernorVariables):
        yield from variables(concern, prefix(row.key))


def missing(values: Environment) -> list[str]:
    """Return one sentence that names every variable that this process needs and that is not set; none if all are."""
    absent = [each for each in variables(Environment) if _is_needed(each, values) and not _value(values, each)]
    if not absent:
        return []
    if len(absent) == 1:
        (one,) = absent
        return [f"{one.name} is not set; set it to something like {one.example}. There is no default in production."]
    names_of_all = f"{', '.join(each.name for each in absent[:-1])} and {absent[-1].name}"
    return [f"{names_of_all} are not set; set each, like in .env.example. There are no defaults in production."]


def placeholders(values: Environment) -> list[str]:
    """Return a sentence for each secret of this process that still has the placeholder."""
    found = [each for each in secrets() if PLACEHOLDER in str(_value(values, each))]
    return [placeholder_refusal(each.name) for each in found]


def _wrong_address(values: Environment, each: Variable) -> str:
    value = _value(values, each)
    addresses = value if isinstance(value, tuple) else (value,)
    wrong = (wrong_url(each, address, each.schemes, password=False) for address in addresses if address)
    return next(filter(None, wrong), "") if each.schemes else ""


def _is_needed(each: Variable, values: Environment) -> bool:
    process = values.antenna_process
    return process in each.needed_by if process else bool(each.needed_by)


def _value(values: Environment, each: Variable) -> Any:
    return getattr(values, each.name.lower())


def django_settings(values: Environment) -> dict[str, Any]:
    """Return the variables that are Django settings under their own name: the public ones of web, files and tasks."""
    fields = [field for concern in (Web, Files, Tasks) for field in concern.model_fields]
    public = [field for field in fields if not of(Environment, field).secret and not field.startswith("django_")]
    return {field.upper(): getattr(values, field) for field in public}
