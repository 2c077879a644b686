"""What Compose makes of the files, with and without the two env files, in every supported combination."""

import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from ami.topology.table import ROWS
from ami.topology.topology import override_name
from provision import dotenv, env_files
from tests.support.place import ROOT

BASE, WORKER, CLUSTER, DEMO = (
    "docker-compose.yml",
    "docker-compose.worker.yml",
    "docker-compose.cluster.yml",
    "compose/demo.yml",
)
COMBINATIONS = [(BASE,), (WORKER,), (BASE, WORKER), (BASE, WORKER, CLUSTER), (BASE, WORKER, DEMO)]


pytestmark = pytest.mark.processes


@pytest.fixture(scope="module")
def compose() -> None:
    """Skip where there is no Compose; `make check` says so too."""
    command = ["docker", "compose", "version"]
    if shutil.which("docker") is None or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("no docker compose here")


@pytest.fixture
def folder(compose: None, tmp_path: Path) -> Path:
    """The compose files alone, without env files."""
    (tmp_path / "compose").mkdir()
    for name in (BASE, WORKER, CLUSTER, DEMO):
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def configured(
    folder: Path, files: tuple[str, ...], shell: Mapping[str, str] | None = None, *options: str
) -> dict[str, dict[str, Any]]:
    """Return every service as Compose understands it; a warning is a failure."""
    command = ["docker", "compose", *options, *(part for name in files for part in ("-f", name)), "--profile", "*"]
    done = subprocess.run(
        [*command, "config", "--format", "json"],
        cwd=folder,
        env=dotenv.engine_environment(os.environ) | dict(shell or {}),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return dict(json.loads(done.stdout)["services"])


@pytest.mark.parametrize("files", COMBINATIONS, ids=" ".join)
def test_files_parse_without_a_warning_with_and_without_env_files(folder: Path, files: tuple[str, ...]):
    without = configured(folder, files)
    env_files.write(folder / ".env")
    assert set(configured(folder, files)) == set(without)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.key)
def test_override_in_the_shell_changes_limit_and_environment_alike(folder: Path, row):
    memory, replicas = override_name(row, "container_memory_kib"), override_name(row, "replicas")
    worker = configured(folder, (WORKER,), {memory: "7000000", replicas: "3"})[row.service]
    assert worker["mem_limit"] == worker["memswap_limit"] == str(7_000_000 * 1024)
    assert worker["environment"][memory] == "7000000"
    assert (worker["scale"], worker["environment"][replicas]) == (3, "3")


def test_override_in_the_env_file_changes_limit_and_environment_alike(folder: Path):
    names = {"ANTENNA_INGEST_CONTAINER_MEMORY_KIB": "7000000", "ANTENNA_INGEST_CONCURRENCY": "3"}
    (folder / ".env").write_text("".join(f"{name}={value}\n" for name, value in names.items()))
    worker = configured(folder, (WORKER,))["celeryworker_ingest"]
    assert worker["mem_limit"] == str(7_000_000 * 1024)
    assert worker["environment"].items() >= names.items()


def test_shell_alone_sets_a_worker_s_concurrency(folder: Path):
    worker = configured(folder, (WORKER,), {"ANTENNA_INGEST_CONCURRENCY": "3"})["celeryworker_ingest"]
    assert worker["environment"]["ANTENNA_INGEST_CONCURRENCY"] == "3"


def test_each_process_gets_the_file_that_it_needs(folder: Path):
    env_files.write(folder / ".env")
    ours, theirs = (dotenv.variables((folder / name).read_text()) for name in (".env", ".env.services"))
    found = {name: service.get("environment", {}) for name, service in configured(folder, (BASE, WORKER)).items()}
    beside = {"redis", "postgres", "rabbitmq", "nats", "proxy", "prometheus", "grafana", "processing", "objects"}
    for name in set(found) - beside - {"definitions"}:
        assert found[name].items() >= ours.items()
        assert not set(found[name]) & set(theirs)
    for name in ("redis", "postgres", "definitions"):
        assert found[name].items() >= theirs.items()
    for name in beside:
        assert not set(found[name]) & set(ours)


def test_env_files_may_be_elsewhere(folder: Path):
    elsewhere = folder / "elsewhere"
    elsewhere.mkdir()
    more = {"ANTENNA_ENV_FILE": f"{elsewhere}/env", "ANTENNA_SERVICES_ENV_FILE": f"{elsewhere}/env.services"}
    env_files.write(elsewhere / "env")
    with (elsewhere / "env").open("a") as file:
        file.writelines(f"{name}={value}\n" for name, value in more.items())
    found = configured(folder, (BASE, WORKER), None, "--env-file", str(elsewhere / "env"))
    assert "CELERY_BROKER_URL" in found["celeryworker"]["environment"]
    assert "REDIS_PASSWORD" in found["redis"]["environment"]
