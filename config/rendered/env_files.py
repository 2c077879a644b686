"""Renders `.env.example` and `.env.services.example`: every variable with its documentation."""

import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import replace

from ami.environment.declaration import Variable, of, variables
from ami.environment.secret_files import PLACEHOLDER
from ami.governor.settings import GovernorVariables
from ami.topology.overrides import Overrides, prefix
from ami.topology.table import ROWS
from ami.topology.topology import Routing
from config.schema.addresses import Addresses
from config.schema.environment import CONCERNS, secrets, switches, title
from config.schema.services import Services

WIDTH = 117

HEADER = f"""\
# Every variable of the compose files and of Antenna's processes. Rendered from config/schema by `make render`; do not
# edit. Copy it to .env (ignored by git), replace each {PLACEHOLDER} (production refuses to start with it), and
# uncomment what you need. Only Docker Compose reads .env; settings do not. A value after `#` is the default, or an
# example where there is no default. Percent-encode passwords inside URLs.
# New secret: python3 -c 'import secrets; print(secrets.token_urlsafe(50))'
"""

SERVICES_HEADER = f"""\
# The accounts of RabbitMQ, Redis, PostgreSQL and NATS where docker-compose.yml starts them. Rendered from config/schema
# by `make render`; do not edit. Antenna's processes do not see this file: the URLs in .env have the same values,
# percent-encoded. `make up` and `python -m provision dotenv` write both. By hand: copy it to .env.services (ignored by
# git) and replace each {PLACEHOLDER}; a value with a $ or a # stands in single quotes.
# <NAME>_FILE=/path reads NAME from a file below ANTENNA_SECRETS_FOLDER of .env; leave NAME itself empty.
"""


def env_example() -> str:
    """Return the text of `.env.example`."""
    parts = [HEADER, *_secret_files()]
    for concern in CONCERNS:
        parts += _section(title(concern), variables(concern))
        if concern is Routing:
            parts += map(_entry, switches())
        if concern is GovernorVariables:
            parts += _of_one_queue()
    return "".join(parts)


def services_example() -> str:
    """Return the text of `.env.services.example`."""
    secret = [each for each in variables(Services) if each.secret]
    examples = [_entry(_as_file(each)) for each in secret]
    return "".join([SERVICES_HEADER, *_section(title(Services), variables(Services)), *examples])


def _section(heading: str, found: Iterable[Variable]) -> Iterator[str]:
    yield f"\n# --- {heading} ".ljust(WIDTH, "-") + "\n"
    yield from map(_entry, found)


def _entry(variable: Variable) -> str:
    """Return a variable's documentation and its assignment, both as comments where it need not be set."""
    mark = "" if variable.written else "#"
    return f"{_comment(variable.line)}{mark}{variable.name}={value(variable)}\n"


def _comment(text: str) -> str:
    lines = textwrap.wrap(text, WIDTH, initial_indent="# ", subsequent_indent="# ", break_long_words=False)
    return "\n".join(lines) + "\n"


def value(variable: Variable) -> str:
    """Return the value to show: a secret's placeholder, or what is written instead of the default, or the default."""
    if variable.secret:
        shown = "" if " " in variable.example else variable.example.replace("PASSWORD", PLACEHOLDER)
        return shown or PLACEHOLDER
    return variable.example if variable.written and variable.example else variable.default_text or variable.example


def _secret_files() -> Iterator[str]:
    found = list(secrets())
    yield "\n# --- Secrets from files ".ljust(WIDTH, "-") + "\n"
    yield _comment(
        "<NAME>_FILE=/path reads NAME from a file, as Docker and Kubernetes mount secrets; leave NAME itself empty. A "
        "file is read once, at start; spaces and line breaks around its text do not count, and the text is set in the "
        "process's environment."
    )
    yield _comment(f"NAME: {' '.join(each.name for each in found)}")
    yield _entry(_as_file(of(Addresses, "redis_url")))


def _as_file(secret: Variable) -> Variable:
    path = f"/run/secrets/{secret.name.lower()}"
    return replace(
        secret,
        name=secret.file,
        line=f"A file with {secret.name}.",
        secret=False,
        written=False,
        default=None,
        example=path,
    )


def _of_one_queue() -> Iterator[str]:
    first = ROWS[0]
    yield _comment(f"{prefix('<KEY>')}<NAME> sets any of these for one queue, for example:")
    yield _entry(of(GovernorVariables, "memory_throttle_threshold", prefix(first.key)))
    yield "\n# --- The numbers of a queue ".ljust(WIDTH, "-") + "\n"
    yield _comment(
        f"{prefix('<KEY>')}<FIELD> overrides a number of ami/topology/table.py; `python -m ami.topology table` shows "
        f"them. {first.key} stands for any KEY."
    )
    yield _comment(f"KEY: {' '.join(row.key for row in ROWS)}")
    for each in variables(Overrides, prefix(first.key)):
        field = each.name.removeprefix(prefix(first.key)).lower()
        yield _entry(replace(each, default=getattr(first, field)))
