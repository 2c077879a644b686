"""Renders docs/settings.md: one table per concern."""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from ami.environment.declaration import Variable, variables
from ami.governor.settings import GovernorVariables
from ami.topology.overrides import Overrides, prefix
from ami.topology.table import ROWS
from ami.topology.topology import Routing
from config.rendered.env_files import value
from config.schema.earlier import SUCCESSORS
from config.schema.environment import CONCERNS, switches, title
from config.schema.services import Services

HEADER = """\
# Settings

Every variable, rendered from `config/schema` by `make render`; do not edit.

- A wrong value, or an `ANTENNA_*` name that nothing reads, stops every process with a sentence that names the remedy.
- A *secret* may be the path of a file instead: `<NAME>_FILE=/run/secrets/name`. Its value is never shown.
- `manage.py diffsettings`, which is Django's, does print secrets.
- *Needed by* names the processes that production does not start without it.
- `.env.example` has the same variables. Only Docker Compose reads `.env`; without it: `set -a; . ./.env; set +a`.
"""

COLUMNS = "| variable | default | values | |\n|---|---|---|---|\n"


def settings_page() -> str:
    """Return the text of docs/settings.md."""
    parts = [HEADER]
    for concern in (*CONCERNS, Services):
        if concern is GovernorVariables:
            parts += _numbers_of_a_queue()
        own = [*variables(concern), *(switches() if concern is Routing else ())]
        parts += _section(title(concern).replace("`", ""), own)
        if concern is GovernorVariables:
            parts.append(f"\n`{prefix('<KEY>')}<NAME>` sets any of these for one queue.\n")
        if concern is Services:
            parts.append("\nThese stand in `.env.services`; Antenna's processes do not see them.\n")
    parts.append("\n## Variables of the Antenna before\n\nReported at start, and otherwise ignored.\n\n")
    parts.append("| variable | instead |\n|---|---|\n")
    parts += [f"| `{name}` | {instead} |\n" for name, instead in SUCCESSORS.items()]
    return "".join(parts)


def _section(heading: str, found: Iterable[Variable]) -> Iterator[str]:
    yield f"\n## {heading}\n\n{COLUMNS}"
    yield from map(_row, found)


def _row(each: Variable) -> str:
    default = f"`{each.default_text}`" if each.default_text and not each.secret else ""
    text = each.line
    if each.needed_by:
        text += f" *Needed by {', '.join(each.needed_by)}.*"
    if not default and value(each) and not each.secret:
        text += f" Example: `{value(each)}`."
    return f"| `{each.name}` | {default} | {_values(each)} | {text} |\n"


def _values(each: Variable) -> str:
    if each.secret:
        return "secret"
    if each.choices:
        return ", ".join(f"`{choice}`" for choice in each.choices)
    if each.kind is bool:
        return "`1`, `0`"
    if each.low is not None:
        return ", ".join([f"{each.low:g} to {each.high:.15g}", *(f"`{word}`" for word in each.words)])
    return ""


def _numbers_of_a_queue() -> Iterator[str]:
    keys = [row.key for row in ROWS]
    yield (
        f"\n## The numbers of a queue\n\n`{prefix('<KEY>')}<FIELD>` overrides a number of `ami/topology/table.py`. The "
        f"keys are {', '.join(f'`{key}`' for key in keys)}. `python -m ami.topology table` shows the numbers of this "
        f"environment.\n\n| field | {' | '.join(keys)} | values | |\n"
    )
    yield "|---" * (len(ROWS) + 3) + "|\n"
    for each in variables(Overrides):
        values = " | ".join(replace(each, default=getattr(row, each.name.lower())).default_text for row in ROWS)
        yield f"| `{each.name}` | {values} | {_values(each)} | {each.line} |\n".replace("|  |", "| |")
