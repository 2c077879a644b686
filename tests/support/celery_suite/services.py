"""The services of the compose files, as what pytest-docker-tools is told to start the same containers."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from provision import dotenv
from tests.support.containers.deployment import FILES, INSIDE
from tests.support.containers.engine import run
from tests.support.place import ROOT

#: What of a service is the engine's own argument, unchanged.
SAME = ("command", "init", "read_only", "cap_drop", "security_opt", "cpu_shares")
BYTES = ("mem_limit", "memswap_limit")
ARGUMENTS = (*SAME, *BYTES, "environment", "restart_policy", "tmpfs", "volumes")

#: The tests' own tasks, and where the containers find them beside the image that is tested.
OWN = Path(__file__).parent / "inside"
TASKS = {"PYTHONPATH": "/smoke:/suite", "ANTENNA_EXTRA_TASKS": "smoke_tasks,suite_tasks"}


def services(variables: Mapping[str, str], folder: Path) -> dict[str, dict[str, Any]]:
    """Return every service of both compose files as Compose reads them with these variables, and with no other."""
    (env_file := folder / "env").write_text("".join(f"{name}={value}\n" for name, value in variables.items()))
    command = ["docker", "compose", "--env-file", str(env_file), "--project-directory", str(ROOT)]
    command += [part for name in FILES for part in ("--file", str(ROOT / name))]
    read = json.loads(
        run([*command, "config", "--format", "json"], cwd=ROOT, env=dotenv.engine_environment(os.environ))
    )
    return dict(read["services"])


def arguments(service: Mapping[str, Any], files: str) -> dict[str, Any]:
    """Return how docker-py starts a container of this service; ``files`` is the volume in which files are shared."""
    binds = {files: {"bind": "/data", "mode": "rw"}}
    binds |= {str(INSIDE): {"bind": "/smoke", "mode": "ro"}, str(OWN): {"bind": "/suite", "mode": "ro"}}
    environment = {name: value for name, value in (service.get("environment") or {}).items() if value is not None}
    return {
        **{name: service.get(name) for name in SAME},
        **{name: int(service[name]) for name in BYTES if name in service},
        "environment": {**environment, **TASKS},
        "restart_policy": {"Name": service.get("restart", "no")},
        "tmpfs": dict.fromkeys(service.get("tmpfs", ()), ""),
        "volumes": binds,
    }
