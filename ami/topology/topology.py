"""The enabled rows with the environment's overrides, checked together."""

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, get_args

from pydantic import create_model

from ami.environment.declaration import Variable, Variables, of, variable
from ami.environment.errors import EnvironmentRefused, did_you_mean
from ami.environment.reader import read
from ami.topology.errors import TopologyError
from ami.topology.overrides import PREFIX, Overrides, prefix, without_auto
from ami.topology.table import FALLBACK, ROWS
from ami.topology.workload import Workload

Mode = Literal["split", "single"]

#: How many tasks' rules a process keeps; a name may come from anywhere.
MAX_KNOWN = 1_000

#: The setting in which a deployment has rules of its own (`ami.topology.task_routes`).
ROUTES_SETTING = "CELERY_TASK_ROUTES"


class Routing(Variables):
    """Where tasks go"""

    antenna_routing: Mode = variable(
        "split", "Where tasks go: `single` until `manage.py queues rollout` reports that every queue has a worker."
    )


class Placement(NamedTuple):
    """Where a task goes: the queue and the rule that chose it."""

    queue: str
    rule: str
    routed: bool


@dataclass(frozen=True)
class Topology:
    """All enabled workloads. ``routing`` is ``split``, or ``single`` until a rollout has switched.

    ``disabled`` are the rows that are off, so that an error about one of their queues can say how to switch it on.
    ``routes`` are a deployment's own rules, from a task name or a glob to a queue: each counts as a rule of that
    queue's row, and its globs beat those of the table.

    Raises:
        TopologyError: two rows have the same queue or service, two rows name the same task, a redirect or a route names
            an unknown queue, a route contradicts an exact name in a row, or the fallback row is missing.
    """

    workloads: tuple[Workload, ...]
    routing: str = "split"
    disabled: tuple[Workload, ...] = ()
    routes: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    #: What claims a task, by its name: each publish and each run asks.
    _known: dict[str, tuple[Workload | None, str]] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.routing not in get_args(Mode):
            raise TopologyError(f"The routing is '{self.routing}'; use one of {', '.join(get_args(Mode))}.")
        for name in ("queue", "key", "service"):
            _refuse_duplicates(name, [getattr(row, name) for row in self.workloads])
        _refuse_duplicates("task", [task for row in self.workloads for task in row.tasks])
        if FALLBACK not in self.queues:
            raise TopologyError(f"No row is the fallback queue '{FALLBACK}'; without it an unrouted task is lost.")
        for row in self.workloads:
            for target in row.redirects.values():
                self.workload(target)
        self._refuse_wrong_routes()

    def _refuse_wrong_routes(self) -> None:
        for rule, queue in self.routes.items():
            try:
                self.workload(queue)
            except TopologyError as error:
                raise TopologyError(f"{ROUTES_SETTING} sends '{rule}' to '{queue}': {error}") from None
            for row in self.workloads:
                if "*" not in rule and rule in row.tasks and row.queue != queue:
                    raise TopologyError(
                        f"{ROUTES_SETTING} sends '{rule}' to '{queue}', and the row of '{row.queue}' in "
                        "ami/topology/table.py names the same; remove one of the two."
                    )

    @property
    def queues(self) -> tuple[str, ...]:
        """The names of all consumed queues."""
        return tuple(row.queue for row in self.workloads)

    def workload(self, queue: str) -> Workload:
        """Return the row of ``queue``.

        Raises:
            TopologyError: no workload consumes it; the message says how to switch it on, or suggests the nearest
                known name.
        """
        for row in self.workloads:
            if row.queue == queue:
                return row
        for row in self.disabled:
            if row.queue == queue:
                raise TopologyError(
                    f"The queue '{queue}' is off; set {row.enabled_by}=1 for every process to switch it on, and "
                    f"COMPOSE_PROFILES={row.key.lower()} for its container {row.service}."
                )
        known = (*self.queues, *(row.queue for row in self.disabled))
        raise TopologyError(
            f"No workload consumes the queue '{queue}'.{did_you_mean(queue, known)} Known: {', '.join(self.queues)}."
        )

    def place(self, task: str, origin: str | None = None) -> Placement:
        """Return where ``task`` goes when ``origin`` published it. An exact name beats a glob.

        Raises:
            TopologyError: two globs claim the task.
        """
        row, rule = self._claimed(task)
        if row is None:
            return Placement(FALLBACK, "no rule: fallback", False)
        target = row.redirects.get(origin or "", row.queue)
        rule = rule if target == row.queue else f"{rule}, origin {origin}"
        if self.routing == "single":
            return Placement(FALLBACK, f"{rule} (single: {target} later)", True)
        return Placement(target, rule, True)

    def home(self, task: str) -> Workload:
        """Return the row whose rule claims ``task``, regardless of origin; the fallback row if none does."""
        row, _ = self._claimed(task)
        return row or self.workload(FALLBACK)

    def _claimed(self, task: str) -> tuple[Workload | None, str]:
        claimed = self._known.get(task)
        if claimed is None:
            claimed = self._claim(task)
            if len(self._known) < MAX_KNOWN:
                self._known[task] = claimed
        return claimed

    def _claim(self, task: str) -> tuple[Workload | None, str]:
        table = [(row, rule) for row in self.workloads if (rule := row.claim(task))]
        for row, rule in table:
            if rule == task:
                return row, rule
        if task in self.routes:
            return self.workload(self.routes[task]), _of_deployment(task)
        if own := [rule for rule in self.routes if "*" in rule and fnmatchcase(task, rule)]:
            claims = [(self.workload(self.routes[rule]), rule) for rule in own]
            row, rule = _only(task, claims, ROUTES_SETTING)
            return row, _of_deployment(rule)
        return _only(task, table, "one row") if table else (None, "")

    @property
    def fingerprint(self) -> str:
        """Twelve hex digits that differ if publisher and worker would route a message differently."""
        facts = [(row.queue, row.tasks, sorted(row.redirects.items()), row.inherits_origin) for row in self.workloads]
        own = [sorted(self.routes.items())] if self.routes else []
        return hashlib.sha256(json.dumps([self.routing, facts, *own], default=list).encode()).hexdigest()[:12]

    def as_dicts(self) -> list[dict[str, object]]:
        """Return each row as plain data, for ``--json``."""
        return [
            {
                **asdict(replace(row, redirects={}, governor={})),
                "redirects": dict(row.redirects),
                "governor": dict(row.governor),
                "memory_limit_kib": row.memory_limit_kib,
            }
            for row in self.workloads
        ]


def _of_deployment(rule: str) -> str:
    return f"{rule} ({ROUTES_SETTING})"


def _only(task: str, claims: list[tuple[Workload, str]], where: str) -> tuple[Workload, str]:
    """Return the first claim, if all lead to the same queue; ``where`` is what can name the task exactly."""
    if len({row.queue for row, _ in claims}) > 1:
        both = " and ".join(f"'{rule}' ({row.queue})" for row, rule in claims)
        raise TopologyError(f"{task} is claimed by two globs: {both}. Name the task exactly in {where}.")
    return claims[0]


def _refuse_duplicates(field: str, values: Iterable[str]) -> None:
    seen: set[str] = set()
    for value in values:
        if value in seen:
            raise TopologyError(f"Two rows name the {field} '{value}'; each belongs to exactly one.")
        seen.add(value)


def load(environ: Mapping[str, str] | None = None, rows: tuple[Workload, ...] = ROWS) -> Topology:
    """Return the topology of this environment. Settings and ``python -m ami.topology`` both call this.

    Every number of a row is overridable as ``ANTENNA_<KEY>_<FIELD>``, for example ``ANTENNA_INGEST_CONCURRENCY=16``.

    Raises:
        TopologyError: an override is not a number, out of bounds, contradicts its row, or names an unknown row.
    """
    environ = os.environ if environ is None else environ
    _refuse_unknown(environ, rows)
    try:
        routing = read(Routing, environ).antenna_routing
        enabled = {row.queue for row in rows if _enabled(row, environ)}
        return Topology(
            tuple(_overridden(row, environ) for row in rows if row.queue in enabled),
            routing,
            disabled=tuple(row for row in rows if row.queue not in enabled),
        )
    except EnvironmentRefused as error:
        raise TopologyError(str(error)) from None


def complete(rows: tuple[Workload, ...] = ROWS) -> Topology:
    """Return the topology with every row switched on, and no override."""
    return load({row.enabled_by: "1" for row in rows if row.enabled_by}, rows)


def override_name(row: Workload, field: str) -> str:
    """Return the environment variable that overrides ``field`` of ``row``."""
    return f"{prefix(row.key)}{field.upper()}"


def switch(row: Workload) -> Variable:
    """Return the variable that switches on a row which is off by default."""
    return of(_switch(row), _field(row))


def _switch(row: Workload) -> type[Variables]:
    line = f"Whether the queue {row.queue} exists; its container also needs COMPOSE_PROFILES={row.key.lower()}."
    fields: dict[str, Any] = {_field(row): (bool, variable(False, line))}
    return create_model("Switch", __base__=Variables, **fields)


def _field(row: Workload) -> str:
    return (row.enabled_by or "").lower()


def _enabled(row: Workload, environ: Mapping[str, str]) -> bool:
    return row.enabled_by is None or bool(getattr(read(_switch(row), environ), _field(row)))


def _overridden(row: Workload, environ: Mapping[str, str]) -> Workload:
    table = {field: getattr(row, field) for field in Overrides.model_fields}
    environ, is_auto = without_auto(environ, override_name(row, "concurrency"))
    changes = read(Overrides, environ, prefix(row.key), shown=table).model_dump(exclude_none=True)
    if is_auto:
        changes["auto_concurrency"] = True
    try:
        return replace(row, **changes)
    except TopologyError as error:
        names = ", ".join(override_name(row, field) for field in changes)
        raise TopologyError(f"{error} Set through {names}.") from None


def _refuse_unknown(environ: Mapping[str, str], rows: tuple[Workload, ...]) -> None:
    known = {override_name(row, field) for row in rows for field in Overrides.model_fields}
    suffixes = tuple(f"_{field.upper()}" for field in Overrides.model_fields)
    for name in environ:
        if name.startswith(PREFIX) and name.endswith(suffixes) and name not in known:
            raise TopologyError(f"{name} overrides no row of the topology.{did_you_mean(name, known)}")
