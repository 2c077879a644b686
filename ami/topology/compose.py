"""Renders ``docker-compose.worker.yml`` as text, with its comments and anchors: one service per queue, and beat."""

import json

from ami.environment.declaration import variables
from ami.topology.containers import FRESH_SECONDS, PULSE_FILE, TICK_FILE
from ami.topology.image import Image
from ami.topology.process import PROCESS, STARTED_BY
from ami.topology.topology import Topology, complete, override_name
from ami.topology.workload import Workload

IMAGE, VERSION, ENV_FILE, SECRETS = (each.interpolation for each in variables(Image))

#: Passed on if the shell or `.env` sets it: Compose reads these itself, and the container must have the same number.
PASSED_ON = ("concurrency", "cpu_shares", "cpus", "replicas", "stop_grace_period_seconds")

HEADER = f"""\
# One worker service per queue, and one beat. Rendered from ami/topology/table.py by `make render`; do not edit.
#
#   docker compose -f docker-compose.yml -f docker-compose.worker.yml up     everything on one machine
#   docker compose -f docker-compose.worker.yml up                           workers against services elsewhere
#
# Needs Compose 2.24 or later. Settings are in `.env` beside this file (see .env.example); a process that lacks one
# names it in its log and ends. Another file: `docker compose --env-file FILE`, with ANTENNA_ENV_FILE=FILE in it.
# The shell overrides what stands in ${{}} and what has no value below; every other variable is read from the file only.

x-antenna: &antenna
  image: {IMAGE}
  build:
    context: .
    dockerfile: compose/Dockerfile
    target: antenna
    args: {{VERSION: "{VERSION}"}}
  env_file: [{{path: "{ENV_FILE}", required: false}}]
  init: true
  restart: unless-stopped
  read_only: true
  tmpfs: [/tmp]
  cap_drop: [ALL]
  security_opt: ["no-new-privileges:true"]
  volumes: ["files:/data", "{SECRETS}:/run/secrets:ro"]

# The start period covers services that are still starting, and migrations.
x-healthcheck: &healthcheck {{interval: 10s, timeout: 5s, retries: 2, start_period: 180s}}

x-worker: &worker
  <<: *antenna
  healthcheck: {{<<: *healthcheck, test: [CMD, fresh, {PULSE_FILE}, "{FRESH_SECONDS}"]}}

services:
"""

BEAT = f"""\
  celerybeat:
    <<: *antenna
    command: [beat]
    environment:
      {PROCESS}: beat
      {STARTED_BY}: compose
    healthcheck: {{<<: *healthcheck, test: [CMD, fresh, {TICK_FILE}, "{FRESH_SECONDS}"]}}
    mem_limit: 512m
    stop_grace_period: 10s

volumes:
  files: {{}}
"""


def render(topology: Topology | None = None) -> str:
    """Return the compose file. Default topology: every row of the table; rows that are off get a profile."""
    topology = topology or complete()
    return HEADER + "\n".join([*map(_worker, topology.workloads), BEAT])


def _worker(row: Workload) -> str:
    """Return one service. Swap is off: both memory limits are the same."""
    memory = _number(row, "container_memory_kib", row.memory_limit_kib)
    # 0 is no limit. More cores than the host has make `up` fail, so there is no other default.
    cpus = _number(row, "cpus", f"{row.cpus or 0:g}")
    labels = json.dumps({"antenna.queue": row.queue, "antenna.promise": row.promise})
    enabled = f'\n      {row.enabled_by}: "1"' if row.enabled_by else ""
    profile = f"    profiles: [{row.key.lower()}]\n" if row.enabled_by else ""
    passed_on = "\n".join(f"      {override_name(row, field)}:" for field in PASSED_ON)
    return f"""\
  {row.service}:
    <<: *worker
{profile}    command: [worker, {row.queue}]
    environment:
      {PROCESS}: worker{enabled}
      {STARTED_BY}: compose
      {override_name(row, "container_memory_kib")}: {memory}
{passed_on}
    mem_limit: {memory}k
    memswap_limit: {memory}k
    cpu_shares: {_number(row, "cpu_shares", row.cpu_shares)}
    cpus: {cpus}
    scale: {_number(row, "replicas", row.replicas)}
    stop_grace_period: {_number(row, "stop_grace_period_seconds", row.stop_grace_period_seconds)}s
    labels: {labels}
"""


def _number(row: Workload, field: str, default: object) -> str:
    """Return what Compose replaces by the operator's number, or by the row's."""
    return f"${{{override_name(row, field)}:-{default}}}"
