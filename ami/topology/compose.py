"""Renders ``docker-compose.worker.yml``: one service per queue, and beat."""

from typing import Any

import yaml

from ami.topology.topology import Topology, load, override_name
from ami.topology.workload import BOUNDS, Workload

HEADER = """\
# One worker service per queue, and one beat. Rendered from ami/topology/table.py by `make topology`; do not edit.
# Every number can be set in the environment or in .env, for example ANTENNA_INGEST_CONCURRENCY=32.
#
#   docker compose -f docker-compose.yml -f docker-compose.worker.yml up     everything on one machine
#   docker compose -f docker-compose.worker.yml up                           workers against brokers elsewhere
"""

#: Without these no process starts; compose refuses before any container exists.
REQUIRED = ("DJANGO_SECRET_KEY", "DJANGO_ALLOWED_HOSTS", "CELERY_BROKER_URL", "REDIS_URL", "DATABASE_URL", "NATS_URL")
DEFAULTS = {"DJANGO_SETTINGS_MODULE": "config.settings.production", "ANTENNA_ROUTING": "split"}

#: What else settings read: passed on when it is set, absent when it is not, so that the code's own default holds.
OPTIONAL = (
    "ANTENNA_EXTRA_TASKS",
    "ANTENNA_LOCAL_SOURCE_ROOTS",
    "ANTENNA_LOG_LEVEL",
    "ANTENNA_PROXIES",
    "ANTENNA_PUBLIC_URL",
    "ANTENNA_RESULT_MAX_BYTES",
    "ANTENNA_S3_BUCKET",
    "ANTENNA_S3_ENDPOINT_URL",
    "ANTENNA_SERVE_MEDIA",
    "ANTENNA_SLOW_ENABLED",
    "ANTENNA_TASK_EVENTS",
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "CELERY_RESULT_BACKEND",
    "DATA_UPLOAD_MAX_MEMORY_SIZE",
    "DJANGO_CSRF_TRUSTED_ORIGINS",
    "DJANGO_SECURE_SSL_REDIRECT",
    "FLOWER_URL",
    "NATS_MAX_ACK_PENDING",
    "NATS_MAX_DELIVER",
    "NATS_TASK_TTR",
    "RABBITMQ_MANAGEMENT_URL",
)

#: The settings of a worker's governor (ami.governor.settings, which stands above this package): for all queues, and as
#: ANTENNA_<KEY>_<NAME> for one. Passed on to workers alone, as OPTIONAL is.
GOVERNOR = (
    "MEMORY_GOVERNOR",
    "MEMORY_THROTTLE_THRESHOLD",
    "MEMORY_RESUME_THRESHOLD",
    "GPU_THROTTLE_THRESHOLD",
    "GPU_RESUME_THRESHOLD",
    "SWAP_THROTTLE_THRESHOLD",
    "PRESSURE_THROTTLE_THRESHOLD",
    "PRESSURE_RESUME_THRESHOLD",
    "MEMORY_CHECK_INTERVAL",
    "MEMORY_MIN_HOLD_SECONDS",
    "MEMORY_MAX_HOLD_SECONDS",
    "MEMORY_INTERRUPT_BUSY",
    "MEMORY_RESERVATION",
    "MEMORY_CEILING",
    "WORKER_SINGLE_JOB_MODE",
    "MASTER_GRACE_PERIOD_SECONDS",
    "WORKER_STAGGER_SECONDS",
    "WORKER_COOLDOWN_SECONDS",
    "GOVERNOR_STATE_DIR",
)

#: Crops, exports and stored results of a deployment without object storage: one volume that web and workers share.
FILES = "files"

#: Beat ticks at least every 5 s (CELERY_BEAT_MAX_LOOP_INTERVAL). One that hangs for so long is frozen, though its
#: process lives (incident 17: 4.6 days).
BEAT_TICK_FILE = "/tmp/beat-tick"  # noqa: S108 - inside beat's own container
BEAT_FROZEN_SECONDS = 60


def render(topology: Topology | None = None) -> str:
    """Return the compose file. Without a topology: every row of the table, rows that are off behind a profile."""
    topology = topology or load({"ANTENNA_SLOW_ENABLED": "1"})
    services = {row.service: _worker(row) for row in topology.workloads}
    services["celerybeat"] = _beat()
    file = {"services": services, "volumes": {FILES: {}}}
    return HEADER + "\n" + yaml.safe_dump(file, sort_keys=False, width=120, default_flow_style=False)


def _worker(row: Workload) -> dict[str, Any]:
    grace = override_name(row, "stop_grace_period_seconds")
    service = {
        **_common(),
        "command": ["python", "-m", "ami.topology", "worker", row.queue],
        "environment": {**_environment(), **_overrides(row), **_governor(row)},
        "mem_limit": f"${{{override_name(row, 'container_memory_kib')}:-{row.memory_limit_kib}}}k",
        "cpu_shares": f"${{{override_name(row, 'cpu_shares')}:-{row.cpu_shares}}}",
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
        "command": ["python", "-m", "ami.topology", "beat"],
        "environment": {
            **_environment(),
            "ANTENNA_BEAT_TICK_FILE": BEAT_TICK_FILE,
            "ANTENNA_BEAT_PATIENCE_SECONDS": "${ANTENNA_BEAT_PATIENCE_SECONDS:-300}",
        },
        "healthcheck": {
            "test": ["CMD-SHELL", f"find {BEAT_TICK_FILE} -newermt '{BEAT_FROZEN_SECONDS} seconds ago' | grep -q ."],
            "interval": "15s",
            "timeout": "5s",
            "retries": 2,
            "start_period": "60s",
        },
        "mem_limit": "512m",
        "stop_grace_period": "10s",
    }


def _common() -> dict[str, Any]:
    return {
        "image": "${ANTENNA_IMAGE:-antenna:local}",
        "build": {"context": ".", "dockerfile": "compose/Dockerfile"},
        "init": True,
        "restart": "unless-stopped",
        "volumes": [f"{FILES}:/data"],
    }


def _environment() -> dict[str, str | None]:
    return {
        **{name: f"${{{name}:?set {name} in .env, see .env.example}}" for name in REQUIRED},
        **{name: f"${{{name}:-{default}}}" for name, default in DEFAULTS.items()},
        **dict.fromkeys(OPTIONAL),
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
