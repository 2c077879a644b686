"""The two compose files: loopback ports, required credentials, one environment, and health checks of progress."""

import os
import re
import subprocess
import time

import pytest
import yaml

from ami.governor import settings as governor
from ami.topology import compose, containers
from ami.topology.table import ROWS
from ami.topology.topology import override_name
from tests.support.place import ROOT

TEXT = (ROOT / "docker-compose.yml").read_text()
SERVICES = yaml.load(TEXT, yaml.CSafeLoader)["services"]
WORKERS = yaml.load((ROOT / "docker-compose.worker.yml").read_text(), yaml.CSafeLoader)["services"]
OURS = ("setup", "web", "flower")
ONCE = ("setup", "definitions")
THEIRS = ("rabbitmq", "redis", "postgres", "nats", "prometheus")


def test_main_file_has_the_services_and_no_worker():
    assert set(SERVICES) == {*OURS, "processing", *ONCE, *THEIRS, "objects"}
    assert not set(SERVICES) & set(WORKERS)


@pytest.mark.parametrize("name", SERVICES)
def test_every_published_port_is_on_loopback_and_configurable(name: str):
    for port in SERVICES[name].get("ports", ()):
        assert re.fullmatch(r"127\.0\.0\.1:\$\{PUBLISHED_[A-Z_]+_PORT:-\d+\}:\d+", port)


def test_no_credential_has_a_default():
    secret = r"(?<!\$)\$\{([A-Z0-9_]*(?:USER|PASSWORD|SECRET_|BASIC_AUTH|_URL)[A-Z0-9_]*)([^}]*)\}"
    found = re.findall(secret, TEXT)
    assert len(found) > 10
    for name, rest in found:
        assert rest == f"?set {name} in .env, see .env.example"


@pytest.mark.parametrize("name", OURS)
def test_web_and_workers_read_the_same_environment(name: str):
    """Incident 10: hosts had different addresses of NATS and Redis."""
    own = {"WEB_CONCURRENCY", "FLOWER_BASIC_AUTH", "FLOWER_BASIC_AUTH_FILE"}
    environment = {key: value for key, value in SERVICES[name]["environment"].items() if key not in own}
    beat = {key: value for key, value in WORKERS["celerybeat"]["environment"].items() if key in environment}
    assert environment == beat
    files = {f"{name}_FILE" for name in containers.AS_FILES}
    assert set(environment) == {*containers.REQUIRED, *containers.DEFAULTS, *containers.OPTIONAL, *files}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.key)
def test_worker_gets_governor_settings_of_all_queues_and_its_own(row):
    environment = WORKERS[row.service]["environment"]
    own = {override_name(row, name) for name in governor.NAMES}
    governs = {name for name in environment if name.endswith(tuple(governor.NAMES))}
    assert governs == {*governor.NAMES, *own}
    assert {environment[name] for name in governs - {"GOVERNOR_STATE_DIR"}} == {None}, "passed on when set"


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.key)
def test_governor_state_survives_a_container_restart(row):
    # Passed on without a value it would unset the image's own, and /tmp is lost at a restart.
    assert WORKERS[row.service]["environment"]["GOVERNOR_STATE_DIR"] == "${GOVERNOR_STATE_DIR:-/data/governor}"
    assert "files:/data" in WORKERS[row.service]["volumes"]


def test_every_antenna_process_has_the_same_image_and_files():
    ours = [*(SERVICES[name] for name in OURS), *WORKERS.values()]
    assert {service["image"] for service in ours} == {"${ANTENNA_IMAGE:-antenna:local}"}
    assert all(service["volumes"] == ["files:/data", compose.SECRETS] for service in ours)


@pytest.mark.parametrize("name", [*WORKERS, *OURS, "processing", "objects", "definitions"])
def test_every_own_service_has_an_init(name: str):
    assert (WORKERS | SERVICES)[name]["init"] is True


@pytest.mark.parametrize("name", [*WORKERS, "processing", "objects", *OURS])
def test_every_own_image_is_a_target_of_the_dockerfile(name: str):
    build = (WORKERS | SERVICES)[name]["build"]
    target = name if name in ("processing", "objects") else "antenna"
    args = {"args": {"VERSION": "${ANTENNA_VERSION:-unknown}"}} if target == "antenna" else {}
    assert build == {"context": ".", "dockerfile": "compose/Dockerfile", "target": target, **args}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.key)
def test_worker_has_memory_limit_without_swap_and_no_core_limit(row):
    service = WORKERS[row.service]
    assert service["memswap_limit"] == service["mem_limit"]
    assert service["cpus"] == f"${{{override_name(row, 'cpus')}:-0}}", "more than the host has would make `up` fail"
    assert service["cpu_shares"].endswith(f":-{row.cpu_shares}}}")


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.key)
def test_worker_logs_what_it_waits_for_and_reports_progress(row):
    service = WORKERS[row.service]
    assert service["command"] == [*containers.WAITING, "worker", row.queue]
    assert service["healthcheck"]["test"] == ["CMD", "fresh", service["environment"]["ANTENNA_PULSE_FILE"], "60"]


@pytest.mark.parametrize("name", sorted(set(SERVICES) - {*ONCE, "nats"}))
def test_every_long_running_service_has_a_health_check(name: str):
    assert SERVICES[name]["healthcheck"]["test"]


def test_optional_services_have_a_profile():
    profiles = {name: service["profiles"] for name, service in (SERVICES | WORKERS).items() if "profiles" in service}
    assert profiles == {"objects": ["objects"], "prometheus": ["monitoring"], "celeryworker_slow": ["slow"]}


def test_prometheus_scrapes_the_rabbitmq_plugin():
    jobs = yaml.load((ROOT / "compose/prometheus.yml").read_text(), yaml.CSafeLoader)["scrape_configs"]
    assert {target for job in jobs for one in job["static_configs"] for target in one["targets"]} == {"rabbitmq:15692"}


def test_redis_writes_nothing_to_disk_and_is_bounded():
    """Incident 12: its snapshots saturated the disk and NATS hung."""
    command = SERVICES["redis"]["command"]
    assert command[command.index("--save") + 1] == ""
    assert "--maxmemory" in command
    assert SERVICES["redis"]["volumes"] == [compose.SECRETS]


def test_recreated_container_keeps_its_data():
    for name in ("rabbitmq", "postgres", "nats"):
        assert SERVICES[name]["volumes"][0].split(":")[0] == name
    assert SERVICES["rabbitmq"]["hostname"] == "rabbitmq"


@pytest.mark.processes
@pytest.mark.parametrize(
    ("age_seconds", "healthy"), [(0, True), (45, True), (90, False), (4.6 * 86_400, False), (None, False)]
)
def test_beat_is_healthy_only_while_it_ticks(tmp_path, age_seconds, healthy):
    """Incident 17: beat was alive but frozen for 4.6 days."""
    environment, file = WORKERS["celerybeat"]["environment"], tmp_path / "tick"
    kind, script, watched, seconds = WORKERS["celerybeat"]["healthcheck"]["test"]
    assert (kind, watched) == ("CMD", environment["ANTENNA_BEAT_TICK_FILE"])
    if age_seconds is not None:
        file.touch()
        os.utime(file, (time.time() - age_seconds,) * 2)
    done = subprocess.run([ROOT / "compose/start" / script, file, seconds], capture_output=True, check=False)
    assert (done.returncode == 0) is healthy


def test_web_has_no_swap_and_replaces_processes_one_by_one():
    assert SERVICES["web"]["memswap_limit"] == SERVICES["web"]["mem_limit"] == "${WEB_MEMORY:-4g}"
    words = (ROOT / "compose/start/web").read_text().split()
    most, jitter = (int(words[words.index(name) + 1]) for name in ("--max-requests", "--max-requests-jitter"))
    assert 1000 <= jitter < most


def test_only_settings_decide_which_proxy_headers_are_trusted():
    text = (ROOT / "compose/start/web").read_text()
    assert '--forwarded-allow-ips ""' in text
