"""Every secret as a file: none stands in the environment that Compose hands out, and everything starts."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from ami.topology.containers import AS_FILES, REQUIRED
from tests.support.containers.deployment import Deployment, new_variables
from tests.support.containers.engine import inspect

#: What our processes read, and what the services beside them do.
OURS = (*REQUIRED, "RABBITMQ_MANAGEMENT_URL")
SECRETS = (*(name for name in OURS if name in AS_FILES), "RABBITMQ_PASSWORD", "REDIS_PASSWORD", "POSTGRES_PASSWORD")
NEEDED = ("setup", "celeryworker", "rabbitmq", "redis", "postgres", "nats")


def as_files(folder: Path, variables: dict[str, str]) -> dict[str, str]:
    """Write each secret to a file that containers may read, and return the variables that name the files instead."""
    folder.mkdir()
    found = {**variables, "ANTENNA_SECRETS_FOLDER": str(folder)}
    for name in SECRETS:
        (folder / name.lower()).write_text(variables[name] + "\n")
        found[name], found[f"{name}_FILE"] = "", f"/run/secrets/{name.lower()}"
    return found


@pytest.fixture(scope="module")
def secretive(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Deployment, list[str]]]:
    """A deployment whose secrets are files, and those secrets."""
    folder, variables = tmp_path_factory.mktemp("secretive"), new_variables()
    folder.chmod(0o755)
    made = Deployment(folder / "deployment", as_files(folder / "secrets", variables))
    try:
        made.up("--build", *NEEDED)
        yield made, [variables[name] for name in SECRETS]
    finally:
        made.down("--volumes")


def test_a_worker_starts_and_answers(secretive: tuple[Deployment, list[str]]):
    deployment, _ = secretive
    assert deployment.health("celeryworker") == "healthy"
    answers = json.loads(deployment.execute("celeryworker", "celery", "-A", "config", "inspect", "ping", "--json"))
    assert [node.split("@")[0] for node in answers] == ["fallback"]


@pytest.mark.parametrize("service", NEEDED)
def test_the_engine_is_told_no_secret_and_no_log_shows_one(secretive: tuple[Deployment, list[str]], service: str):
    deployment, secrets = secretive
    # NATS alone takes its password from the environment: its official image has nothing to read a file with.
    told = "" if service == "nats" else json.dumps(inspect(deployment.container(service)))
    told += deployment.logs(service)
    assert [secret for secret in secrets if secret in told] == []


def test_what_is_asked_for_and_is_not_there_is_named(secretive: tuple[Deployment, list[str]]):
    deployment, secrets = secretive
    said = deployment.compose(
        *("run", "--rm", "--no-TTY", "--no-deps", "--env", "REDIS_URL_FILE=/run/secrets/nowhere"),
        *("celeryworker", "sh", "-c", "python -m config.waiting true 2>&1; echo $?"),
    )
    assert said.endswith("\n1\n"), said
    assert "REDIS_URL_FILE" in said
    assert "/run/secrets/nowhere" in said
    assert [secret for secret in secrets if secret in said] == []
