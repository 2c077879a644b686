"""Runs a service of the repository's `docker-compose.yml` in its own project, on free loopback ports."""

from __future__ import annotations

import json
import os
import secrets
import shutil
from pathlib import Path

from provision import commands
from provision.kind import Kind, LaunchSpec, Unavailable
from provision.ports import free_ports

FILE = Path(__file__).parent.parent / "docker-compose.yml"
ANSWER_SECONDS = 10.0
START_SECONDS = 300.0  # the image may have to be pulled


def tool() -> list[str]:
    """`docker compose`. Raises `Unavailable`: no docker, no engine, no Compose v2."""
    docker = shutil.which("docker")
    if not docker:
        raise Unavailable("no docker")
    try:
        commands.run([docker, "info", "--format", "{{.ServerVersion}}"], seconds=ANSWER_SECONDS)
    except Unavailable:
        raise Unavailable("no docker engine answers") from None
    try:
        commands.run([docker, "compose", "version", "--short"], seconds=ANSWER_SECONDS)
    except Unavailable:
        raise Unavailable("docker has no compose plugin") from None
    return [docker, "compose"]


def look(kind: Kind) -> str:
    """What `prepare` would run. Raises `Unavailable`."""
    if not FILE.exists():
        raise Unavailable(f"no {FILE.name}")
    tool()
    return f"the service {kind.name} of {FILE.name}"


def override(kind: Kind, published: dict[int, int], password: str) -> str:
    """An override file: our ports, login and command, no volumes, and nothing of the deployment's env files."""
    lines = [
        "services:",
        f"  {kind.name}:",
        "    restart: 'no'",
        "    volumes: !reset []",
        # Without its volume, NATS stores below /tmp.
        "    read_only: false",
        "    env_file: !reset []",
        "    ports: !override",
    ]
    lines += [f'      - "127.0.0.1:{outside}:{inside}"' for inside, outside in published.items()]
    environment = json.dumps(dict(kind.container.environment(password)))
    lines += [f"    environment: !override {environment}"]
    if kind.container.command:
        lines.append(f"    command: !override {json.dumps(kind.container.command)}")
    return "\n".join(lines) + "\n"


def prepare(kind: Kind, folder: Path) -> LaunchSpec:
    """A `docker compose up` in the foreground, guarded like any server. Raises `Unavailable`."""
    published = dict(zip(kind.container.ports, free_ports(len(kind.container.ports)), strict=True))
    password = secrets.token_hex(12)
    second = folder / "override.yml"
    second.write_text(override(kind, published, password))
    second.chmod(0o600)
    project = folder.name.lower().replace("_", "-")
    base = [
        *tool(),
        "--project-name",
        project,
        "--env-file",
        os.devnull,
        "--file",
        str(FILE),
        "--file",
        str(second),
    ]
    try:
        known = commands.run([*base, "config", "--services"], seconds=ANSWER_SECONDS).split()
    except Unavailable as error:
        raise Unavailable(f"{FILE.name} cannot be used: {error}") from None
    if kind.name not in known:
        raise Unavailable(f"{FILE.name} has no service {kind.name}")
    url, management_url = kind.container.urls(published, password)
    return LaunchSpec(
        argv=(*base, "up", "--no-deps", "--no-build", kind.name),
        url=url,
        management_url=management_url,
        port=published[kind.container.ports[0]],
        folder=folder,
        env=dict(os.environ),
        grace_seconds=30.0,
        leaves_something=True,
        start_seconds=START_SECONDS,
        kill_argv=(*base, "kill", kind.name),
        after=(*base, "down", "--volumes", "--timeout", "5"),
    )
