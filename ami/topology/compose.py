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
from ami.topology.overrides import BOUNDS
from ami.topology.topology import Topology, complete, override_name
from ami.topology.workload import Workload
from ami.topology.yaml_text import dump

HEADER = """\
# One worker service per queue, and one beat. Rendered from ami/topology/table.py by `make render`; do not edit.
# Every number can be set in the environment or in .env, for example ANTENNA_INGEST_CONCURRENCY=32.
#
#   docker compose -f docker-compose.yml -f docker-compose.worker.yml up     everything on one machine
#   docker compose -f docker-compose.worker.yml up                           workers against brokers elsewhere
"""

#: The volume that web and workers share for crops, exports and stored results in a deployment without object storage.
FILES = "files"

#: Where workers keep the governor's files, on the volume, so that they survive the container.
GOVERNOR_FOLDER = "/data/governor"

#: The folder of the files that *_FILE variables name; by default an empty one.
SECRETS = "${ANTENNA_SECRETS_FOLDER:-./compose/secrets}:/run/secrets:ro"


def render(topology: Topology | None = None) -> str:
    """Return the compose file. Default topology: every row of the table; rows that are off get a profile."""
    topology = topology or complete()
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
            # With a default: a variable passed on without a value would unset the image's own, and /tmp is memory.
            "GOVERNOR_STATE_DIR": f"${{GOVERNOR_STATE_DIR:-{GOVERNOR_FOLDER}}}",
            "ANTENNA_PULSE_FILE": PULSE_FILE,
        },
        "healthcheck": _healthcheck(PULSE_FILE),
        "mem_limit": memory,
        # The same as mem_limit: no swap.
        "memswap_limit": memory,
        "cpu_shares": f"${{{override_name(row, 'cpu_shares')}:-{row.cpu_shares}}}",
        # 0 is no limit. More cores than the host has make `up` fail, so there is no other default.
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
    """Check for progress without starting Python (compose/start/fresh)."""
    return {
        "test": ["CMD", "fresh", file, str(FRESH_SECONDS)],
        "interval": "10s",
        "timeout": "5s",
        "retries": 2,
        # Services may still be starting, and migrations running.
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
    """Pass every override through, empty if unset: the table's own number then applies inside the container.

    The memory limit is always passed, so that a raised concurrency that no longer fits is refused at start.
    """
    names = [override_name(row, field) for field in (*BOUNDS, "pool")]
    defaults = {override_name(row, "container_memory_kib"): row.memory_limit_kib}
    return {name: f"${{{name}:-{defaults.get(name, '')}}}" for name in names}


def _governor(row: Workload) -> dict[str, None]:
    return dict.fromkeys((*GOVERNOR, *(override_name(row, name) for name in GOVERNOR)))
