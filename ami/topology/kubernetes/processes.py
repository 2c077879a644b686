"""What each process needs on Kubernetes: the operator's choices, its variables, its size and its number of replicas."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

from ami.environment.declaration import of
from ami.environment.url_login import LOGIN
from ami.topology import app
from ami.topology.containers import PULSE_FILE, TICK_FILE
from ami.topology.errors import TopologyError
from ami.topology.image import Image
from ami.topology.overrides import BOUNDS
from ami.topology.process import PROCESS, STARTED_BY
from ami.topology.topology import Topology, override_name
from ami.topology.workload import Workload

USER_ID = 10001

STATE_FOLDER = "/state"

#: How long a process may wait for the database, the broker and the migrations before its start counts as failed.
START_SECONDS = 1800

#: Wait timeout; a minute below START_SECONDS, so the error is logged before the platform kills the container.
WAIT_SECONDS = START_SECONDS - 60


class Size(NamedTuple):
    """A container's resources: memory in KiB; cores in thousandths, requested and as a limit."""

    memory_kib: int
    cpu_milli: int
    cpu_limit_milli: int | None = None


#: The processes without a row in the table. Web: three processes, each of which may read a large body of results.
WEB = Size(4 * 1024**2, 500)
BEAT = Size(512 * 1024, 50)
FLOWER = Size(1024**2, 50)
SETUP = Size(1024**2, 250)
BEAT_GRACE_SECONDS = 10
WEB_GRACE_SECONDS = 45

#: A queue with a shorter wait target keeps at least one worker: a new worker needs about a minute to start.
COLD_START_SECONDS = 300

#: Maximum workers per queue without ``--max-replicas``.
MAX_REPLICAS = 4

_NAMESPACE = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_HOST = re.compile(r"(?!-)[a-z0-9-]{1,63}(\.[a-z0-9-]{1,63})*")


@dataclass(frozen=True, kw_only=True)
class Choices:
    """The operator's command-line options. ``files`` is the claim that web and workers mount at /data.

    ``max_replicas`` is by queue name; an empty name means every queue.

    Raises:
        TopologyError: an option has an invalid value.
    """

    image: str = of(Image, "antenna_image").default_text
    host: str = "antenna.example.org"
    namespace: str = "antenna"
    files: str = ""
    vhost: str = "antenna"
    keda: bool = True
    web_replicas: int = 2
    max_replicas: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))

    def __post_init__(self) -> None:
        if self.namespace and not _NAMESPACE.fullmatch(self.namespace):
            raise TopologyError(f"--namespace is '{self.namespace}'; use lower-case letters, digits and '-'.")
        if self.web_replicas < 1:
            raise TopologyError(f"--web-replicas is {self.web_replicas}; use 1 or more.")
        if not _HOST.fullmatch(self.host):
            raise TopologyError(f"--host is '{self.host}'; give the public host name of web, like antenna.example.org.")


def shared(environ: Mapping[str, str], choices: Choices, *also: str) -> dict[str, str]:
    """Return the variables of every process, without secrets. ``also`` are more host names that web accepts.

    Raises:
        TopologyError: a value is a URL with a password in it.
    """
    allowed = app.declared("django_allowed_hosts").name
    others = [name.strip() for name in environ.get(allowed, "").split(",")]
    hosts = dict.fromkeys(name for name in (choices.host, *also, *others) if name)
    values = {
        app.declared("django_settings_module").name: "config.settings.production",
        app.declared("antenna_routing").name: app.declared("antenna_routing").default_text,
        app.declared("antenna_wait_seconds").name: str(WAIT_SECONDS),
        STARTED_BY: "kubernetes",
        # Web is reached through the cluster's own ingress, which speaks https.
        app.declared("antenna_proxies").name: "1",
    }
    public = [each.name for each in app.shared() if not (each.secret or each.by_image)]
    return {**values, **_set(environ, public), allowed: ",".join(hosts)}


def of_worker(row: Workload, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the worker's own variables: its overrides, its governor's settings and the paths of its files.

    The memory limit is always passed, so that a concurrency that does not fit is refused at start.
    """
    names = [override_name(row, name) for name in (*BOUNDS, "pool")]
    governor = [each.name for each in app.of_workers()]
    names += [*governor, *(override_name(row, name) for name in governor)]
    return {
        **_set(environ, names),
        override_name(row, "container_memory_kib"): str(row.memory_limit_kib),
        PROCESS: "worker",
        app.declared("antenna_pulse_file").name: PULSE_FILE,
        app.declared("governor_state_dir").name: STATE_FOLDER,
    }


def of_beat(environ: Mapping[str, str]) -> dict[str, str]:
    """Return beat's own variables."""
    return {
        **_set(environ, [app.declared("antenna_beat_patience_seconds").name]),
        PROCESS: "beat",
        app.declared("antenna_beat_tick_file").name: TICK_FILE,
    }


def of_web(environ: Mapping[str, str]) -> dict[str, str]:
    """Return web's own variables."""
    processes = app.declared("web_concurrency")
    return {
        PROCESS: "web",
        processes.name: environ.get(processes.name) or processes.default_text,
    }


def of_flower() -> dict[str, str]:
    return {PROCESS: "flower"}


def of_setup() -> dict[str, str]:
    return {PROCESS: "setup"}


def size_of(row: Workload) -> Size:
    """Return a worker's size. 1024 shares are one core; the limit is the row's ``cpus``, if set."""
    reserved = max(1, row.cpu_shares * 1000 // 1024)
    limit = None if row.cpus is None else max(1, int(row.cpus * 1000))
    return Size(row.memory_limit_kib, reserved if limit is None else min(reserved, limit), limit)


def min_replicas(row: Workload) -> int:
    """Return this queue's minimum number of workers.

    Raises:
        TopologyError: it is 0, though the wait target is shorter than a worker's start.
    """
    if row.replicas == 0 and row.wait_target_seconds < COLD_START_SECONDS:
        raise TopologyError(
            f"{override_name(row, 'replicas')} is 0, but {row.queue} promises to start within "
            f"{row.wait_target_seconds:g} s and a new worker needs longer; use 1 or more."
        )
    return row.replicas


def max_replicas(row: Workload, choices: Choices) -> int:
    """Return this queue's maximum number of workers.

    Raises:
        TopologyError: it is below the minimum.
    """
    floor = max(1, min_replicas(row))
    chosen = choices.max_replicas.get(row.queue, choices.max_replicas.get(""))
    if chosen is not None and chosen < floor:
        raise TopologyError(
            f"--max-replicas is {chosen} for {row.queue}, whose minimum is {floor}; use {floor} or more."
        )
    return chosen or max(MAX_REPLICAS, floor)


def refuse_unknown_queues(topology: Topology, choices: Choices) -> None:
    """Refuse a maximum for a queue that no workload consumes."""
    for queue in filter(None, choices.max_replicas):
        topology.workload(queue)


def _set(environ: Mapping[str, str], names: list[str]) -> dict[str, str]:
    """Return those of ``names`` that are set; an empty value counts as unset, so that the code's default applies."""
    values = {name: environ[name] for name in names if environ.get(name)}
    for name, value in values.items():
        if LOGIN.search(value):
            raise TopologyError(f"{name} is a URL with a login in it, and would be rendered; remove the login.")
    return values
