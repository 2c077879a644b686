"""The governor's settings: names and thresholds, per queue overridable, refused at start when they contradict."""

import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path

from ami.governor.errors import GovernorError
from ami.topology.errors import did_you_mean
from ami.topology.topology import FALSE, TRUE
from ami.topology.workload import Workload

MODES = ("off", "dry-run", "on")
PREFIX = "ANTENNA_"


@dataclass(frozen=True, kw_only=True)
class GovernorSettings:
    """One worker's settings. Each field is the variable of the same name in capitals.

    Precedence: ``ANTENNA_<KEY>_<NAME>`` (one queue), the row of the topology table, ``<NAME>`` (all queues), the
    default. Thresholds are percent. Thresholds, interval and the four ``worker_``/``master_`` settings come from the
    governor's specification (docs/decisions/0016).

    Raises:
        GovernorError: a value contradicts another, or a name is unknown.
    """

    memory_governor: str = "on"
    memory_throttle_threshold: float = 90.0
    memory_resume_threshold: float = 80.0
    gpu_throttle_threshold: float = 85.0
    gpu_resume_threshold: float = 75.0
    swap_throttle_threshold: float = 70.0
    pressure_throttle_threshold: float = 20.0
    pressure_resume_threshold: float = 5.0
    memory_check_interval: float = 5.0
    memory_min_hold_seconds: float = 10.0
    memory_max_hold_seconds: float = 300.0
    memory_interrupt_busy: bool = False
    memory_reservation: str = "off"
    memory_ceiling: bool = True
    worker_single_job_mode: bool = False
    master_grace_period_seconds: float = 0.0
    worker_stagger_seconds: float = 0.0
    worker_cooldown_seconds: float = 0.0
    governor_state_dir: str = ""

    def __post_init__(self) -> None:
        for name, (low, high) in BOUNDS.items():
            if not low <= getattr(self, name) <= high:
                raise GovernorError(
                    f"{name.upper()} is {getattr(self, name):g}; it must be a number from {low:g} to {high:g}."
                )
        for name in ("memory_governor", "memory_reservation"):
            if getattr(self, name) not in MODES:
                raise GovernorError(f"{name.upper()} is '{getattr(self, name)}'; use one of {', '.join(MODES)}.")
        for kind in ("memory", "gpu", "pressure"):
            throttle, resume = getattr(self, f"{kind}_throttle_threshold"), getattr(self, f"{kind}_resume_threshold")
            if resume >= throttle:
                raise GovernorError(
                    f"{kind.upper()}_RESUME_THRESHOLD ({resume:g}) must be below {kind.upper()}_THROTTLE_THRESHOLD "
                    f"({throttle:g}), or the worker would hold and release at every check."
                )
        if self.memory_max_hold_seconds < self.memory_min_hold_seconds:
            raise GovernorError(
                f"MEMORY_MAX_HOLD_SECONDS ({self.memory_max_hold_seconds:g}) is below MEMORY_MIN_HOLD_SECONDS "
                f"({self.memory_min_hold_seconds:g})."
            )

    @property
    def acts(self) -> bool:
        """Whether decisions are applied; in dry-run they are only logged."""
        return self.memory_governor == "on"

    def state_folder(self, node: str) -> Path:
        """Return the folder for task sizes and run records of the worker ``node``; it survives the worker."""
        base = self.governor_state_dir or str(Path(tempfile.gettempdir()) / f"antenna-governor-{os.getuid()}")
        return Path(base) / node.replace("/", "_")


#: Inclusive bounds of the numbers.
BOUNDS: Mapping[str, tuple[float, float]] = {
    **{
        f"{kind}_{edge}_threshold": (1, 100)
        for kind in ("memory", "gpu", "pressure")
        for edge in ("throttle", "resume")
    },
    "swap_throttle_threshold": (1, 100),
    "memory_check_interval": (0.2, 300),
    "memory_min_hold_seconds": (0, 3600),
    "memory_max_hold_seconds": (1, 86_400),
    "master_grace_period_seconds": (0, 3600),
    "worker_stagger_seconds": (0, 600),
    "worker_cooldown_seconds": (0, 3600),
}

NAMES = {field.name.upper(): field for field in fields(GovernorSettings)}


def load(row: Workload | None = None, environ: Mapping[str, str] | None = None) -> GovernorSettings:
    """Return the settings of the worker that consumes ``row``'s queue (None: a queue that is not in the table).

    Raises:
        GovernorError: naming the variable, its value and the remedy.
    """
    environ = os.environ if environ is None else environ
    read = dict(_all_queues(environ))
    if row is not None:
        read |= _of_the_row(row)
        read |= dict(_one_queue(row, environ))
    try:
        return replace(GovernorSettings(), **read)  # type: ignore[arg-type]
    except GovernorError as error:
        where = f" (queue {row.queue})" if row else ""
        raise GovernorError(f"{error}{where}") from None


def refuse_unknown(rows: tuple[Workload, ...], environ: Mapping[str, str]) -> None:
    """Refuse ``ANTENNA_<KEY>_<NAME>`` for an unknown key: a misspelt queue would silently keep the default."""
    known = {f"{PREFIX}{row.key}_{name}" for row in rows for name in NAMES}
    for variable in environ:
        governs = variable.startswith(PREFIX) and variable.endswith(tuple(f"_{name}" for name in NAMES))
        if governs and variable not in known:
            raise GovernorError(f"{variable} is not a setting of any queue.{did_you_mean(variable, known)}")


def _all_queues(environ: Mapping[str, str]) -> list[tuple[str, object]]:
    return [(field.name, _parsed(name, environ[name])) for name, field in NAMES.items() if environ.get(name)]


def _of_the_row(row: Workload) -> dict[str, object]:
    """Return the settings in the row.

    Raises:
        GovernorError: a name is not a setting, or a value has the wrong type.
    """
    for name, value in row.governor.items():
        field = NAMES.get(name.upper())
        if field is None or field.name != name:
            known = [field.name for field in NAMES.values()]
            raise GovernorError(f"{row.queue}: '{name}' is not a setting of the governor.{did_you_mean(name, known)}")
        number = isinstance(field.default, float) and isinstance(value, int | float) and not isinstance(value, bool)
        if not number and type(value) is not type(field.default):
            kind = type(field.default).__name__
            raise GovernorError(f"{row.queue}: {name} is {value!r} in the topology table; it must be a {kind}.")
    return dict(row.governor)


def _one_queue(row: Workload, environ: Mapping[str, str]) -> list[tuple[str, object]]:
    named = [(f"{PREFIX}{row.key}_{name}", field.name) for name, field in NAMES.items()]
    return [(field, _parsed(name, environ[name])) for name, field in named if environ.get(name)]


def _parsed(name: str, raw: str) -> object:
    default = next(field.default for known, field in NAMES.items() if name.endswith(known))
    raw = raw.strip()
    if isinstance(default, bool):
        if raw.lower() not in TRUE + FALSE:
            raise GovernorError(f"{name} is '{raw}'; use 1 or 0.")
        return raw.lower() in TRUE
    if isinstance(default, float):
        try:
            return float(raw)
        except ValueError:
            raise GovernorError(f"{name} is '{raw}'; it must be a number.") from None
    return raw
