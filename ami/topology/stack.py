"""Renders the input of ``docker stack deploy``: the same processes on a swarm, without what that does not honour."""

from collections.abc import Mapping
from typing import Any

from ami.topology import containers, processes
from ami.topology.processes import START_SECONDS, Choices, Size
from ami.topology.topology import Topology
from ami.topology.workload import Workload
from ami.topology.yaml_text import dump

HEADER = """\
# Rendered from ami/topology/table.py by `python -m ami.topology stack`; do not edit. See docs/kubernetes.md.
# No secret stands here. The network and one secret per name below exist before the stack does:
#
#   docker network create --driver overlay --attachable antenna
#   printf %s "$DATABASE_URL" | docker secret create antenna_database_url -
#   docker stack deploy --with-registry-auth --compose-file FILE antenna
"""

NETWORK = "antenna"

#: 3.8 is what Docker 20.10 reads; later ones read it, too.
VERSION = "3.8"

_ASK_WEB = (
    "import urllib.request as http; http.urlopen(http.Request('http://127.0.0.1:8000/livez', headers={}), timeout=5)"
)
_ASK_FLOWER = "import urllib.request as http; http.urlopen('http://127.0.0.1:5555/healthcheck', timeout=5)"


def render(topology: Topology, environ: Mapping[str, str], choices: Choices) -> str:
    """Return the file. Rows that are off are left out: a swarm knows no profiles.

    Raises:
        TopologyError: a choice or a number that cannot hold, with the remedy.
    """
    names = {*processes.secrets_of(choices), "FLOWER_BASIC_AUTH"}
    file = {
        "version": VERSION,
        "services": _services(topology, environ, choices),
        "networks": {NETWORK: {"external": True, "name": NETWORK}},
        "secrets": {name.lower(): {"external": True, "name": f"antenna_{name.lower()}"} for name in sorted(names)},
        **({"volumes": {"files": {"external": True, "name": choices.files}}} if choices.files else {}),
    }
    return HEADER + "\n" + dump(file)


def _services(topology: Topology, environ: Mapping[str, str], choices: Choices) -> dict[str, Any]:
    common = processes.shared(environ, choices, "web")
    services = {
        "setup": _service(["setup"], common, choices, _setup()),
        "web": _service(["web"], {**common, **processes.of_web(environ)}, choices, _web(choices)),
        "flower": _service(["flower"], common, choices, _flower(), "FLOWER_BASIC_AUTH"),
        "celerybeat": _service(
            [*containers.WAITING, "beat"], {**common, **processes.of_beat(environ)}, choices, _beat()
        ),
    }
    for row in topology.workloads:
        environment = {**common, **processes.of_worker(row, environ)}
        services[row.service] = _service([*containers.WAITING, "worker", row.queue], environment, choices, _worker(row))
    return services


def _service(
    command: list[str], environment: Mapping[str, str], choices: Choices, own: dict[str, Any], *also: str
) -> dict[str, Any]:
    secrets = dict.fromkeys([*processes.secrets_of(choices), *also])
    files = {f"{name}_FILE": f"/run/secrets/{name.lower()}" for name in secrets}
    plain = {name: value.replace("$", "$$") for name, value in environment.items()}
    return {
        "image": choices.image,
        "command": command,
        "environment": {**plain, **files},
        "secrets": [name.lower() for name in secrets],
        "networks": [NETWORK],
        "user": f"{processes.USER_ID}:{processes.USER_ID}",
        "init": True,
        "read_only": True,
        "cap_drop": ["ALL"],
        "volumes": _volumes(choices),
        **own,
    }


def _volumes(choices: Choices) -> list[dict[str, Any]]:
    """Scratch on the disk, not in the container's memory. A task made anew is another worker: nothing is kept for it.

    Without shared files nothing may be written below /data: it would be gone with the task, and nobody would know.
    """
    files: dict[str, Any] = {"type": "tmpfs", "target": "/data", "read_only": True}
    if choices.files:
        files = {"type": "volume", "source": "files", "target": "/data"}
    scratch = [{"type": "volume", "target": "/tmp"}]  # noqa: S108 - a volume of the task
    return [*scratch, {"type": "tmpfs", "target": processes.STATE_FOLDER}, files]


def _worker(row: Workload) -> dict[str, Any]:
    deploy = _deploy(processes.least(row), processes.size_of(row), "start-first")
    return {
        "stop_grace_period": f"{row.stop_grace_period_seconds}s",
        "healthcheck": _fresh(containers.PULSE_FILE),
        "deploy": {**deploy, "labels": {"antenna.queue": row.queue, "antenna.promise": row.promise}},
    }


def _beat() -> dict[str, Any]:
    """One, and never two at once: the old one stops first."""
    return {
        "stop_grace_period": f"{processes.BEAT_GRACE_SECONDS}s",
        "healthcheck": _fresh(containers.TICK_FILE),
        "deploy": _deploy(1, processes.BEAT, "stop-first"),
    }


def _web(choices: Choices) -> dict[str, Any]:
    headers = {"Host": choices.host, "X-Forwarded-Proto": "https"}
    return {
        "stop_grace_period": f"{processes.WEB_GRACE_SECONDS}s",
        "healthcheck": _health("python", "-c", _ASK_WEB.replace("{}", str(headers))),
        "deploy": _deploy(choices.web_replicas, processes.WEB, "start-first"),
    }


def _flower() -> dict[str, Any]:
    return {
        "healthcheck": _health("python", "-c", _ASK_FLOWER),
        "deploy": _deploy(1, processes.FLOWER, "stop-first"),
    }


def _setup() -> dict[str, Any]:
    """Runs once per version and ends; it is started again only when it failed."""
    deploy = _deploy(1, processes.SETUP, "stop-first")
    return {"deploy": {**deploy, "restart_policy": {"condition": "on-failure", "delay": "10s"}}}


def _deploy(replicas: int, size: Size, order: str) -> dict[str, Any]:
    """Return how many, how large and in which order. What cannot start pauses the update; what works stays."""
    memory, cpus = f"{size.memory_kib}k", {"cpus": f"{size.cpu_milli / 1000:g}"}
    limit = {"cpus": f"{size.cpu_limit_milli / 1000:g}"} if size.cpu_limit_milli else {}
    return {
        "replicas": replicas,
        "resources": {
            "limits": {"memory": memory, **limit},
            "reservations": {"memory": memory, **cpus},
        },
        "update_config": {"parallelism": 1, "order": order, "failure_action": "pause"},
        "rollback_config": {"parallelism": 1, "order": order},
        "restart_policy": {"condition": "any", "delay": "5s"},
    }


def _fresh(file: str) -> dict[str, Any]:
    return _health("fresh", file, str(containers.FRESH_SECONDS))


def _health(*command: str) -> dict[str, Any]:
    """Return a generous check: half an hour to start, and five minutes of silence, since the broker may be away."""
    return {
        "test": ["CMD", *command],
        "interval": "30s",
        "timeout": "10s",
        "retries": 10,
        "start_period": f"{START_SECONDS}s",
    }
