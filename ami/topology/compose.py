"""Renders ``docker-compose.worker.yml``: one service per queue, and beat."""

from typing import Any

from ami.topology.containers import (
    AS_FILES,
    DEFAULTS,
    FRESH_SECONDS,
    GOVERNOR,
    OPTIONAL,
    PULSE_FILE,
    REQUIRED,
    TICK_FILE,
    WAITING,
)
from ami.topology.topology import Topology, load, override_name
from ami.topology.workload import BOUNDS, Workload
from ami.topology.yaml_text import dump

HEADER = """\
# One worker service per queue, and one beat. Rendered from ami/topology/table.py by `make topology`; do not edit.
# Every number can be set in the environment or in .env, for example ANTENNA_INGEST_CONCURRENCY=32.
#
#   docker compose -f docker-compose.yml -f docker-compose.worker.yml up     everything on one machine
#   docker compose -f docker-compose.worker.yml up                           workers against brokers elsewhere
"""

#: Crops, exports and stored results of a deployment without object storage: one volume that web and workers share.
FILES = "files"

#: Where workers keep what must outlive the death of all their processes: on the volume.
GOVERNOR_FOLDER = "/data/governor"

#: A folder of files for variables named *_FILE; unless it is set, one that is empty.
SECRETS = "${ANTENNA_SECRETS_FOLDER:-./compose/secrets}:/run/secrets:ro"


def render(topology: Topology | None = None) -> str:
    """Return the compose file. Without a topology: every row of the table, rows that are off behind a profile."""
    topology = topology or load({"ANTENNA_SLOW_ENABLED": "1"})
    services = {row.service: _worker(row) for row in topology.workloads}
    services["celerybeat"] = _beat()
    file = {"services": services, "volumes": {FILES: {}}}
    return HEADER + "\n" + dump(file)


def _worker(row: Workload) -> dict[str, Any]:
    grace = override_name(row, "stop_grace_period_seconds")
    memory = f"${{{override_name(row, 'container_memory_kib')}:-{row.memory_limit_kib}}}k"
    service = {
        **_common(),
        "command": [*WAITING, "worker", row.queue],
        "environment": {
            **_environment(),
            **_overrides(row),
            **_governor(row),
            # With a value: one that is passed on without takes the image's own away, and /tmp is memory.
            "GOVERNOR_STATE_DIR": f"${{GOVERNOR_STATE_DIR:-{GOVERNOR_FOLDER}}}",
            "ANTENNA_PULSE_FILE": PULSE_FILE,
        },
        "healthcheck": _healthcheck(PULSE_FILE),
        "mem_limit": memory,
        # The same: what does not fit is refused by the kernel at once instead of being moved to a disk.
        "memswap_limit": memory,
        "cpu_shares": f"${{{override_name(row, 'cpu_shares')}:-{row.cpu_shares}}}",
        # 0 is none. More than the host has makes `up` fail, so there is no default.
        "cpus": f"${{{override_name(row, 'cpus')}:-{row.cpus or 0:g}}}",
        "scale": f"${{{override_name(row, 'replicas')}:-{row.replicas}}}",
        "stop_grace_period": f"${{{grace}:-{row.stop_grace_period_seconds}}}s",
        "labels": {"antenna.queue": row.queue, "antenna.promise": row.promise},
    }
    if row.enabled_by:
        service["profiles"] = [row.key.lower()]
        service["environment"][row.enabled_by] = "1"
    return service


def _beat() -> dict[str, Any]:
    return {
        **_common(),
        "command": [*WAITING, "beat"],
        "environment": {
            **_environment(),
            "ANTENNA_BEAT_TICK_FILE": TICK_FILE,
            "ANTENNA_BEAT_PATIENCE_SECONDS": "${ANTENNA_BEAT_PATIENCE_SECONDS:-300}",
        },
        "healthcheck": _healthcheck(TICK_FILE),
        "mem_limit": "512m",
        "stop_grace_period": "10s",
    }


def _common() -> dict[str, Any]:
    return {
        "image": "${ANTENNA_IMAGE:-antenna:local}",
        "build": {
            "context": ".",
            "dockerfile": "compose/Dockerfile",
            "target": "antenna",
            "args": {"VERSION": "${ANTENNA_VERSION:-unknown}"},
        },
        "init": True,
        "restart": "unless-stopped",
        "read_only": True,
        "tmpfs": ["/tmp"],  # noqa: S108 - the container's own
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges:true"],
        "volumes": [f"{FILES}:/data", SECRETS],
    }


def _healthcheck(file: str) -> dict[str, Any]:
    """Ask for progress, without starting a Python (compose/start/fresh)."""
    return {
        "test": ["CMD", "fresh", file, str(FRESH_SECONDS)],
        "interval": "10s",
        "timeout": "5s",
        "retries": 2,
        # The services around it may be starting, and the database be migrated.
        "start_period": "180s",
    }


def _environment() -> dict[str, str | None]:
    return {
        **{name: f"${{{name}?set {name} in .env, see .env.example}}" for name in REQUIRED},
        **{name: f"${{{name}:-{default}}}" for name, default in DEFAULTS.items()},
        **dict.fromkeys(OPTIONAL),
        **{f"{name}_FILE": None for name in AS_FILES},
    }


def _overrides(row: Workload) -> dict[str, str]:
    """Pass every override through, empty when unset: the table's own number then holds inside the container.

    The memory limit is always passed, so that a raised concurrency that no longer fits is refused at start.
    """
    names = [override_name(row, field) for field in (*BOUNDS, "pool")]
    defaults = {override_name(row, "container_memory_kib"): row.memory_limit_kib}
    return {name: f"${{{name}:-{defaults.get(name, '')}}}" for name in names}


def _governor(row: Workload) -> dict[str, None]:
    return dict.fromkeys((*GOVERNOR, *(override_name(row, name) for name in GOVERNOR)))
