"""The two compose files: loopback ports, required credentials, one environment, and health that means something."""

import os
import re
import shlex
import subprocess
import time

import pytest
import yaml

from ami.governor import settings as governor
from ami.topology import compose
from ami.topology.table import ROWS
from ami.topology.topology import override_name
from tests.places import ROOT

TEXT = (ROOT / "docker-compose.yml").read_text()
SERVICES = yaml.safe_load(TEXT)["services"]
WORKERS = yaml.safe_load((ROOT / "docker-compose.worker.yml").read_text())["services"]
OURS = ("setup", "web", "flower")


def test_it_holds_the_services_that_workers_need_and_no_worker():
    assert set(SERVICES) == {*OURS, "processing", "rabbitmq", "redis", "postgres", "nats"}
    assert not set(SERVICES) & set(WORKERS)


@pytest.mark.parametrize("name", SERVICES)
def test_every_published_port_is_on_loopback_and_can_be_moved(name: str):
    for port in SERVICES[name].get("ports", ()):
        assert re.fullmatch(r"127\.0\.0\.1:\$\{PUBLISHED_[A-Z_]+_PORT:-\d+\}:\d+", port)


def test_no_credential_has_a_default():
    for name, rest in re.findall(r"\$\{([A-Z0-9_]*(?:USER|PASSWORD|SECRET|BASIC_AUTH|_URL)[A-Z0-9_]*)([^}]*)\}", TEXT):
        assert rest == f":?set {name} in .env, see .env.example"


@pytest.mark.parametrize("name", OURS)
def test_web_and_workers_read_the_same_environment(name: str):
    """Incident 10: hosts that disagreed about where NATS and Redis were."""
    own = {"WEB_CONCURRENCY", "FLOWER_BASIC_AUTH"}
    environment = {key: value for key, value in SERVICES[name]["environment"].items() if key not in own}
    beat = {key: value for key, value in WORKERS["celerybeat"]["environment"].items() if key in environment}
    assert environment == beat
    assert set(environment) == {*compose.REQUIRED, *compose.DEFAULTS, *compose.OPTIONAL}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.key)
def test_a_worker_gets_the_governor_s_settings_for_all_queues_and_for_its_own_alone(row):
    environment = WORKERS[row.service]["environment"]
    own = {override_name(row, name) for name in governor.NAMES}
    governs = {name for name in environment if name.endswith(tuple(governor.NAMES))}
    assert governs == {*governor.NAMES, *own}
    assert {environment[name] for name in governs} == {None}, "passed on when set, absent when not"


def test_every_process_of_antenna_runs_one_image_and_sees_the_same_files():
    ours = [*(SERVICES[name] for name in OURS), *WORKERS.values()]
    assert {service["image"] for service in ours} == {"${ANTENNA_IMAGE:-antenna:local}"}
    assert all(service["volumes"] == ["files:/data"] for service in ours)


@pytest.mark.parametrize("name", set(SERVICES) - {"setup", "nats"})
def test_every_service_that_stays_has_a_health_check(name: str):
    assert SERVICES[name]["healthcheck"]["test"]


def test_redis_writes_nothing_to_disk_and_is_bounded():
    """Incident 12: its snapshots saturated the disk and NATS hung."""
    command = SERVICES["redis"]["command"]
    assert command[command.index("--save") + 1] == ""
    assert "--maxmemory" in command
    assert "volumes" not in SERVICES["redis"]


def test_a_container_made_anew_finds_its_data():
    for name in ("rabbitmq", "postgres", "nats"):
        assert [volume.split(":")[0] for volume in SERVICES[name]["volumes"]] == [name]
    assert SERVICES["rabbitmq"]["hostname"] == "rabbitmq"


def beat_is_healthy() -> bool:
    shell, command = WORKERS["celerybeat"]["healthcheck"]["test"]
    assert shell == "CMD-SHELL"
    return subprocess.run(["/bin/sh", "-c", command], capture_output=True, check=False).returncode == 0


@pytest.mark.parametrize(
    ("age_seconds", "healthy"), [(0, True), (45, True), (90, False), (4.6 * 86_400, False), (None, False)]
)
def test_beat_is_healthy_while_it_ticks_and_not_while_its_process_lives(monkeypatch, tmp_path, age_seconds, healthy):
    """Incident 17: beat was alive but frozen for 4.6 days."""
    environment = WORKERS["celerybeat"]["environment"]
    file = tmp_path / "tick"
    test = WORKERS["celerybeat"]["healthcheck"]["test"]
    assert environment["ANTENNA_BEAT_TICK_FILE"] in shlex.split(test[1])
    command = test[1].replace(environment["ANTENNA_BEAT_TICK_FILE"], str(file))
    monkeypatch.setitem(WORKERS["celerybeat"]["healthcheck"], "test", [test[0], command])
    if age_seconds is not None:
        file.touch()
        os.utime(file, (time.time() - age_seconds,) * 2)
    assert beat_is_healthy() is healthy
