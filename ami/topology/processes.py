"""What Kubernetes and Docker's swarm share: who chose what, which variable is a secret, and each process's contract."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

from ami.topology.containers import DEFAULTS, GOVERNOR, OPTIONAL, PULSE_FILE, REQUIRED, TICK_FILE
from ami.topology.errors import TopologyError
from ami.topology.topology import Topology, override_name
from ami.topology.workload import BOUNDS, Workload

USER_ID = 10001

STATE_FOLDER = "/state"

#: How long a process may wait for the database, the broker and the migrations before it counts as failed to start.
START_SECONDS = 1800

#: How long it waits by itself before it says in vain for what, and ends: a minute less, so that it is heard.
WAIT_SECONDS = START_SECONDS - 60


class Size(NamedTuple):
    """What a container gets: memory in KiB, and thousandths of a core, reserved and at most."""

    memory_kib: int
    cpu_milli: int
    cpu_limit_milli: int | None = None


#: What no row of the table sizes. Web: three processes, each of which may read a large body of results.
WEB = Size(4 * 1024**2, 500)
BEAT = Size(512 * 1024, 50)
FLOWER = Size(1024**2, 50)
SETUP = Size(1024**2, 250)
BEAT_GRACE_SECONDS = 10
WEB_GRACE_SECONDS = 45

#: A queue that promises to start within less than this keeps a worker: a new one needs about a minute to start.
COLD_START_SECONDS = 300

#: How many workers of one queue may run when nobody says otherwise.
MAX_REPLICAS = 4

_SECRET = re.compile(
    "SECRET|PASSWORD|ACCESS_KEY|TOKEN|AUTH|RESULT_BACKEND|(BROKER|DATABASE|REDIS|NATS|RABBITMQ_MANAGEMENT)_URL"
)
_NAMESPACE = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_HOST = re.compile(r"(?!-)[a-z0-9-]{1,63}(\.[a-z0-9-]{1,63})*")


@dataclass(frozen=True, kw_only=True)
class Choices:
    """What the operator says on the command line. ``files`` is a volume that web and workers share below /data.

    ``max_replicas`` is by queue name; an empty name means every queue.

    Raises:
        TopologyError: one of them cannot be.
    """

    image: str = "antenna:local"
    host: str = "antenna.example.org"
    namespace: str = "antenna"
    files: str = ""
    vhost: str = "antenna"
    keda: bool = True
    web_replicas: int = 2
    secrets: tuple[str, ...] = ()
    max_replicas: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))

    def __post_init__(self) -> None:
        if self.namespace and not _NAMESPACE.fullmatch(self.namespace):
            raise TopologyError(f"--namespace is '{self.namespace}'; use lower-case letters, digits and '-'.")
        if self.web_replicas < 1:
            raise TopologyError(f"--web-replicas is {self.web_replicas}; use 1 or more.")
        for name in self.secrets:
            if not is_secret(name):
                raise TopologyError(
                    f"--secret is '{name}', which no process reads from a file; give a credential's name."
                )
        if not _HOST.fullmatch(self.host):
            raise TopologyError(f"--host is '{self.host}'; give the name web is reached at, like antenna.example.org.")


def is_secret(name: str) -> bool:
    """Say whether the value of this variable may hold a credential. Such a value is never rendered."""
    return bool(_SECRET.search(name))


def secrets_of(choices: Choices) -> tuple[str, ...]:
    """Return the variables that every process needs from a secret: the required ones, and those chosen besides."""
    return tuple(dict.fromkeys([*filter(is_secret, REQUIRED), *choices.secrets]))


def shared(environ: Mapping[str, str], choices: Choices, *also: str) -> dict[str, str]:
    """Return what every process is told that is no secret. Web also answers to ``also``.

    Raises:
        TopologyError: a value is a URL with a password in it.
    """
    others = [name.strip() for name in environ.get("DJANGO_ALLOWED_HOSTS", "").split(",")]
    hosts = dict.fromkeys(name for name in (choices.host, *also, *others) if name)
    values = {name: environ.get(name) or default for name, default in DEFAULTS.items()}
    values["ANTENNA_WAIT_SECONDS"] = str(WAIT_SECONDS)
    # Web is reached through the cluster's own ingress, which speaks https.
    values["ANTENNA_PROXIES"] = "1"
    values |= _set(environ, [name for name in OPTIONAL if not is_secret(name)])
    return {**values, "DJANGO_ALLOWED_HOSTS": ",".join(hosts)}


def of_worker(row: Workload, environ: Mapping[str, str]) -> dict[str, str]:
    """Return what this worker alone is told: its overrides, its governor's settings and where its files are.

    The memory limit is always passed, so that a concurrency that does not fit is refused at start.
    """
    names = [override_name(row, name) for name in (*BOUNDS, "pool")]
    names += [*GOVERNOR, *(override_name(row, name) for name in GOVERNOR)]
    return {
        **_set(environ, names),
        override_name(row, "container_memory_kib"): str(row.memory_limit_kib),
        "ANTENNA_PULSE_FILE": PULSE_FILE,
        "GOVERNOR_STATE_DIR": STATE_FOLDER,
    }


def of_beat(environ: Mapping[str, str]) -> dict[str, str]:
    """Return what beat alone is told."""
    return {**_set(environ, ["ANTENNA_BEAT_PATIENCE_SECONDS"]), "ANTENNA_BEAT_TICK_FILE": TICK_FILE}


def of_web(environ: Mapping[str, str]) -> dict[str, str]:
    """Return what web alone is told."""
    return {"WEB_CONCURRENCY": environ.get("WEB_CONCURRENCY") or "3"}


def size_of(row: Workload) -> Size:
    """Return the size of a worker. 1024 shares are one core; at most is what the row says, if it says so."""
    reserved = max(1, row.cpu_shares * 1000 // 1024)
    limit = None if row.cpus is None else max(1, int(row.cpus * 1000))
    return Size(row.memory_limit_kib, reserved if limit is None else min(reserved, limit), limit)


def least(row: Workload) -> int:
    """Return how many workers this queue always has.

    Raises:
        TopologyError: none, though its promise is shorter than a worker's start.
    """
    if row.replicas == 0 and row.wait_target_seconds < COLD_START_SECONDS:
        raise TopologyError(
            f"{override_name(row, 'replicas')} is 0, but {row.queue} promises to start within "
            f"{row.wait_target_seconds:g} s and a new worker needs longer; use 1 or more."
        )
    return row.replicas


def most(row: Workload, choices: Choices) -> int:
    """Return how many workers this queue may grow to.

    Raises:
        TopologyError: fewer than it always has.
    """
    floor = max(1, least(row))
    chosen = choices.max_replicas.get(row.queue, choices.max_replicas.get(""))
    if chosen is not None and chosen < floor:
        raise TopologyError(
            f"--max-replicas is {chosen} for {row.queue}, which always has {floor}; use {floor} or more."
        )
    return chosen or max(MAX_REPLICAS, floor)


def refuse_unknown_queues(topology: Topology, choices: Choices) -> None:
    """Refuse a maximum for a queue that nobody consumes; the nearest known name is given."""
    for queue in filter(None, choices.max_replicas):
        topology.workload(queue)


def _set(environ: Mapping[str, str], names: list[str]) -> dict[str, str]:
    """Return those of ``names`` that are set. An empty value is none: the code's own default holds."""
    values = {name: environ[name] for name in names if environ.get(name)}
    for name, value in values.items():
        if re.search(r"://[^/\s]*@", value):
            raise TopologyError(f"{name} is a URL with a login in it, and would be rendered; take the login out.")
    return values
