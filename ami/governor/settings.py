"""The governor's settings: names and thresholds, per queue overridable, refused at start when they contradict."""

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Literal, Self

from pydantic import model_validator

from ami.environment.declaration import Variables, variable, variables
from ami.environment.errors import EnvironmentRefused, did_you_mean
from ami.environment.reader import build, read
from ami.governor.errors import GovernorError
from ami.topology.overrides import prefix
from ami.topology.workload import Workload

Mode = Literal["off", "dry-run", "on"]


class GovernorVariables(Variables):
    """The workers' governor (docs/decisions/0016)"""

    memory_governor: Mode = variable(
        "on", "`on` acts, `dry-run` only logs what it would do, `off` is a worker without a governor."
    )
    memory_throttle_threshold: float = variable(
        90.0,
        "The percentage of RAM, the container's or the host's, from which a worker takes no tasks.",
        low=1,
        high=100,
    )
    memory_resume_threshold: float = variable(
        80.0, "The percentage of RAM at which it takes tasks again.", low=1, high=100
    )
    gpu_throttle_threshold: float = variable(
        85.0, "The percentage of a GPU's memory from which a worker takes no tasks.", low=1, high=100
    )
    gpu_resume_threshold: float = variable(
        75.0, "The percentage of a GPU's memory at which it takes tasks again.", low=1, high=100
    )
    swap_throttle_threshold: float = variable(
        70.0,
        "The percentage of swap from which a worker takes no tasks; below it, it takes tasks again.",
        low=1,
        high=100,
    )
    pressure_throttle_threshold: float = variable(
        20.0,
        "The percentage of time spent waiting for memory (PSI) from which a worker takes no tasks.",
        low=1,
        high=100,
    )
    pressure_resume_threshold: float = variable(
        5.0, "The percentage of time at which it takes tasks again.", low=1, high=100
    )
    cpu_throttle_threshold: float | None = variable(
        None,
        "The percentage of CPU, of the container's quota or the host's, as a mean over 15 s, from which a worker takes "
        "no tasks; not set: CPU does not hold.",
        low=1,
        high=100,
    )
    cpu_resume_threshold: float | None = variable(
        None, "The percentage of CPU at which it takes tasks again; not set: 10 below.", low=1, high=100
    )
    memory_check_interval: float = variable(
        5.0,
        "Seconds between two measurements of memory; shorter automatically when memory grows fast.",
        low=0.2,
        high=300,
    )
    memory_min_hold_seconds: float = variable(
        10.0, "Minimum seconds of a hold for memory; doubled while it flaps.", low=0, high=3600
    )
    memory_max_hold_seconds: float = variable(
        300.0,
        "Seconds after which a held worker without a running task takes one task; so every hold ends.",
        low=1,
        high=86_400,
    )
    memory_interrupt_busy: bool = variable(
        False,
        "Whether a held worker may send the soft time limit to its largest task when nothing else frees memory.",
    )
    memory_reservation: Mode = variable(
        "off", "Whether a task is taken only where the largest known one still fits: off, dry-run or on."
    )
    memory_ceiling: bool = variable(
        True, "Whether the kernel enforces the hard limit of a process; 0 where libraries map much more than they use."
    )
    worker_single_job_mode: bool = variable(False, "Whether a process ends after each task; only in prefork pools.")
    master_grace_period_seconds: float = variable(
        0.0, "Seconds after a worker's start in which it takes no tasks.", low=0, high=3600
    )
    worker_stagger_seconds: float = variable(
        0.0, "Seconds between the starts of two processes of a worker.", low=0, high=600
    )
    worker_cooldown_seconds: float = variable(0.0, "Seconds that a process pauses between two tasks.", low=0, high=3600)
    governor_state_dir: str = variable(
        "",
        "The folder of running tasks and learned sizes, which must outlive the worker; not set: one below /tmp.",
        by_image=True,
    )


class GovernorSettings(GovernorVariables):
    """One worker's settings, without contradictions.

    Precedence: ``ANTENNA_<KEY>_<NAME>`` (one queue), the row of the topology table, ``<NAME>`` (all queues), the
    default. Thresholds are percent. Thresholds, interval and the four ``worker_``/``master_`` settings come from the
    governor's specification (docs/decisions/0016).
    """

    @model_validator(mode="after")
    def _refuse_contradictions(self) -> Self:
        for kind in ("memory", "gpu", "pressure", "cpu"):
            throttle, resume = getattr(self, f"{kind}_throttle_threshold"), getattr(self, f"{kind}_resume_threshold")
            if throttle is not None and resume is not None and resume >= throttle:
                raise ValueError(
                    f"{kind.upper()}_RESUME_THRESHOLD ({resume:g}) must be below {kind.upper()}_THROTTLE_THRESHOLD "
                    f"({throttle:g}), or the worker would hold and release at every check."
                )
        if self.cpu_resume_threshold is not None and self.cpu_throttle_threshold is None:
            raise ValueError("CPU_RESUME_THRESHOLD is set and CPU_THROTTLE_THRESHOLD is not: set both or neither.")
        if self.memory_max_hold_seconds < self.memory_min_hold_seconds:
            raise ValueError(
                f"MEMORY_MAX_HOLD_SECONDS ({self.memory_max_hold_seconds:g}) is below MEMORY_MIN_HOLD_SECONDS "
                f"({self.memory_min_hold_seconds:g})."
            )
        return self

    @property
    def cpu_resumes_at(self) -> float:
        """The percentage of CPU at which a hold ends."""
        if self.cpu_resume_threshold is not None:
            return self.cpu_resume_threshold
        return max(0.0, (self.cpu_throttle_threshold or 100.0) - 10)

    @property
    def acts(self) -> bool:
        """Whether decisions are applied; in dry-run they are only logged."""
        return self.memory_governor == "on"

    def state_folder(self, node: str) -> Path:
        """Return the folder for task sizes and run records of the worker ``node``; it survives the worker."""
        base = self.governor_state_dir or str(Path(tempfile.gettempdir()) / f"antenna-governor-{os.getuid()}")
        return Path(base) / node.replace("/", "_")


#: The variables for all queues.
NAMES = tuple(each.name for each in variables(GovernorVariables))


def load(
    row: Workload | None = None,
    environ: Mapping[str, str] | None = None,
    defaults: Mapping[str, object] = MappingProxyType({}),
) -> GovernorSettings:
    """Return the settings of the worker that consumes ``row``'s queue (None: a queue that is not in the table).

    ``defaults`` replace the defaults of the variables; any other source takes precedence over them.

    Raises:
        GovernorError: naming the variable, its value and the remedy.
    """
    environ = os.environ if environ is None else environ
    try:
        values = _checked(defaults, "ami.governor.install", "in its settings") | _given(environ)
        if row is not None:
            values |= _checked(row.governor, row.queue, "in the topology table") | _given(environ, prefix(row.key))
    except EnvironmentRefused as error:
        raise GovernorError(str(error)) from None
    try:
        return build(GovernorSettings, values)
    except EnvironmentRefused as error:
        where = f" (queue {row.queue})" if row else ""
        raise GovernorError(f"{error}{where}") from None


def _given(environ: Mapping[str, str], prefix: str = "") -> dict[str, object]:
    return read(GovernorVariables, environ, prefix).model_dump(exclude_unset=True)


def _checked(given: Mapping[str, object], owner: str, where: str) -> dict[str, object]:
    """Return the settings that ``owner`` (a row's queue, or a call) gives in code.

    Raises:
        GovernorError: a name is not a setting, or a value has the wrong type.
    """
    fields = GovernorVariables.model_fields
    for name, value in given.items():
        if name not in fields:
            raise GovernorError(f"{owner}: '{name}' is not a setting of the governor.{did_you_mean(name, fields)}")
        default = 0.0 if fields[name].default is None else fields[name].default  # Those without one are numbers.
        number = isinstance(default, float) and isinstance(value, int | float) and not isinstance(value, bool)
        if not number and type(value) is not type(default):
            kind = type(default).__name__
            raise GovernorError(f"{owner}: {name} is {value!r} {where}; it must be a {kind}.")
    return dict(given)
