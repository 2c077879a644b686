"""The two compose files as they are read: short, loopback ports, two env files, and health checks of progress."""

import os
import re
import subprocess
import time
from pathlib import Path
from string import Template

import pytest
import yaml

from ami.topology import compose, containers
from ami.topology.table import ROWS
from ami.topology.topology import override_name
from tests.support.place import ROOT

TEXT = (ROOT / "docker-compose.yml").read_text()
SERVICES = yaml.load(TEXT, yaml.CSafeLoader)["services"]
WORKERS = yaml.load((ROOT / "docker-compose.worker.yml").read_text(), yaml.CSafeLoader)["services"]
DOCKERFILE = (ROOT / "compose/Dockerfile").read_text()
FILES = (*sorted(ROOT.glob("docker-compose*.yml")), ROOT / "compose/demo.yml")
OWN_ENV_FILE = {"path": "${ANTENNA_ENV_FILE:-.env}", "required": False}
SERVICES_ENV_FILE = {"path": "${ANTENNA_SERVICES_ENV_FILE:-.env.services}", "required": False}
SECRETS = "${ANTENNA_SECRETS_FOLDER:-./compose/secrets}:/run/secrets:ro"
#: The keys of a worker that are the same for every process of ours.
ANYWHERE = ("image", "build", "env_file", "volumes")
OURS = ("setup", "web", "flower")
ONCE = ("setup", "definitions")
THEIRS = ("proxy", "rabbitmq", "redis", "postgres", "nats", "prometheus", "grafana")


def test_main_file_has_the_services_and_no_worker():
    assert set(SERVICES) == {*OURS, "processing", *ONCE, *THEIRS, "objects"}
    assert not set(SERVICES) & set(WORKERS)


@pytest.mark.parametrize("name", SERVICES)
def test_every_published_port_is_on_loopback_and_configurable(name: str):
    for port in SERVICES[name].get("ports", ()):
        assert re.fullmatch(r"127\.0\.0\.1:\$\{PUBLISHED_[A-Z_]+_PORT:-\d+\}:\d+", port)


def test_only_the_proxy_publishes_web():
    published = {
        name: re.findall(r"PUBLISHED_([A-Z_]+)_PORT", str(each.get("ports"))) for name, each in SERVICES.items()
    }
    assert [name for name, ports in published.items() if "WEB" in ports] == ["proxy"]
    assert published["web"] == []


def test_proxy_cannot_fill_memory_or_disk_and_has_no_rights():
    proxy = SERVICES["proxy"]
    assert (proxy["read_only"], proxy["cap_drop"], proxy["user"]) == (True, ["ALL"], "101:101")
    assert (proxy["tmpfs"], proxy["mem_limit"]) == (["/bodies:size=512m", "/tmp:size=1g"], "2g")
    config = (ROOT / "compose/proxy/nginx.conf").read_text()
    written = re.findall(r"^ *(?:pid|\w+_temp_path) (\S+);", config, re.M)
    assert len(written) == 6
    assert [path for path in written if not path.startswith(("/bodies", "/tmp/"))] == []


@pytest.mark.parametrize("address", ["/api/v2/jobs/7/result/", "/api/v2/projects/12/pipelines/"])
def test_proxy_leaves_the_limit_of_large_bodies_to_web(address: str):
    """A worker registers maps of 29,176 classes, some MB each, for each of its pipelines."""
    config = (ROOT / "compose/proxy/nginx.conf").read_text()
    pattern, rules = re.findall(r"location ~ (\S+) \{(.*?)\n        \}", config, re.S)[0]
    assert {"client_max_body_size 0;", "proxy_request_buffering off;"} <= {line.strip() for line in rules.splitlines()}
    target = re.findall(r"proxy_pass http://\$web(\S+)\$is_args\$args;", rules)[0]
    for spelling in (address, address.removesuffix("/")):
        named = re.fullmatch(pattern.replace("(?<", "(?P<"), spelling)
        assert named, "the proxy takes 16 MiB"
        assert Template(target).substitute(named.groupdict()) == spelling


def test_proxy_says_to_web_that_each_connection_closes():
    """Nginx says so by itself only before 1.29.7; web drains a refused body for as long as the header tells."""
    assert "proxy_set_header Connection close;" in (ROOT / "compose/proxy/nginx.conf").read_text()


@pytest.mark.parametrize("name", ["web", "rabbitmq", "redis", "postgres", "nats"])
def test_memory_of_a_service_is_limited_by_a_variable(name: str):
    assert re.fullmatch(rf"\$\{{{name.upper()}_MEMORY:-\d+g\}}", SERVICES[name]["mem_limit"])


@pytest.mark.parametrize("name", SERVICES)
def test_every_lasting_service_has_a_memory_limit(name: str):
    assert name in ONCE or SERVICES[name]["mem_limit"]


def test_worker_file_stays_readable():
    assert len((ROOT / "docker-compose.worker.yml").read_text().splitlines()) <= 56 + 19 * len(ROWS)


@pytest.mark.parametrize("file", FILES, ids=lambda path: path.name)
def test_no_credential_is_replaced_by_compose_and_nothing_is_demanded(file: Path):
    """Compose stops at its first missing value; a process names all that it needs."""
    found = re.findall(r"(?<!\$)\$\{([A-Z0-9_]+)([^}]*)\}", file.read_text())
    assert found
    assert [name for name, rest in found if not rest.startswith(":-")] == []
    secret = re.compile(r"USER|PASSWORD|SECRET_|COOKIE|AUTH|_URL$")
    assert [name for name, _ in found if secret.search(name)] == []


@pytest.mark.parametrize("name", [*WORKERS, *OURS])
def test_every_own_process_reads_one_env_file_and_says_what_it_is(name: str):
    """Incident 10: hosts had different addresses of NATS and Redis."""
    service = (SERVICES | WORKERS)[name]
    assert service["env_file"] == [OWN_ENV_FILE]
    what = "beat" if name == "celerybeat" else "worker" if name in WORKERS else name
    assert service["environment"]["ANTENNA_PROCESS"] == what


def test_services_beside_ours_read_their_logins_from_another_file():
    files = {
        name: service["env_file"] for name, service in SERVICES.items() if name not in OURS and "env_file" in service
    }
    assert files == {
        "definitions": [OWN_ENV_FILE, SERVICES_ENV_FILE],
        "redis": [SERVICES_ENV_FILE],
        "postgres": [SERVICES_ENV_FILE],
    }


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.key)
def test_worker_knows_every_number_that_compose_reads(row):
    service = WORKERS[row.service]
    text = str([value for key, value in service.items() if key not in ("environment", *ANYWHERE)])
    read = set(re.findall(r"\$\{([A-Z0-9_]+)", text))
    assert read == {override_name(row, field) for field in compose.PASSED_ON if field != "concurrency"} | {
        override_name(row, "container_memory_kib")
    }
    environment = dict(service["environment"])
    assert (environment.pop("ANTENNA_PROCESS"), environment.pop("ANTENNA_STARTED_BY")) == ("worker", "compose")
    assert environment.pop("ANTENNA_SLOW_ENABLED", "1") == "1"
    memory = environment.pop(override_name(row, "container_memory_kib"))
    assert f"{memory}k" == service["mem_limit"]
    assert environment == dict.fromkeys(override_name(row, field) for field in compose.PASSED_ON)


def test_every_antenna_process_has_the_same_image_and_files():
    ours = [*(SERVICES[name] for name in OURS), *WORKERS.values()]
    assert {service["image"] for service in ours} == {"${ANTENNA_IMAGE:-antenna:local}"}
    assert all(service["volumes"] == ["files:/data", SECRETS] for service in ours)


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
    assert service["command"] == ["worker", row.queue]
    script = (ROOT / "compose/start/worker").read_text()
    assert f'\nexec {" ".join(containers.WAITING)} worker "$@"\n' in script
    assert f"ANTENNA_PULSE_FILE={containers.PULSE_FILE}" in DOCKERFILE
    assert service["healthcheck"]["test"] == ["CMD", "fresh", containers.PULSE_FILE, "60"]


def test_governor_state_survives_a_container_restart():
    # On the volume: /tmp is memory, and the image's own layer is read-only.
    assert "GOVERNOR_STATE_DIR=/data/governor" in DOCKERFILE
    assert all("files:/data" in WORKERS[row.service]["volumes"] for row in ROWS)


@pytest.mark.parametrize("name", sorted(set(SERVICES) - {*ONCE, "nats"}))
def test_every_long_running_service_has_a_health_check(name: str):
    assert SERVICES[name]["healthcheck"]["test"]


def test_optional_services_have_a_profile():
    profiles = {name: service["profiles"] for name, service in (SERVICES | WORKERS).items() if "profiles" in service}
    assert profiles == {
        "objects": ["objects"],
        "prometheus": ["monitoring"],
        "grafana": ["monitoring"],
        "celeryworker_slow": ["slow"],
    }


def test_prometheus_scrapes_web_and_the_rabbitmq_plugin():
    jobs = yaml.load((ROOT / "compose/monitoring/prometheus.yml").read_text(), yaml.CSafeLoader)["scrape_configs"]
    targets = {job["job_name"]: [one["targets"] for one in job["static_configs"]] for job in jobs}
    rabbitmq = [["rabbitmq:15692"]]
    assert targets == {"antenna": [["web:8000"]], "rabbitmq-nodes": rabbitmq, "rabbitmq-queues": rabbitmq}


@pytest.mark.parametrize(("name", "secret"), [("prometheus", "antenna_metrics_token"), ("grafana", "grafana_password")])
def test_service_of_monitoring_mounts_its_secret_alone_and_files_that_exist(name: str, secret: str):
    binds = [volume for volume in SERVICES[name]["volumes"] if isinstance(volume, dict)]
    assert [(each["target"], each["bind"]) for each in binds] == [
        (f"/run/secrets/{secret}", {"create_host_path": False})
    ]
    files = [volume.split(":")[0] for volume in SERVICES[name]["volumes"] if str(volume).startswith("./")]
    assert files
    assert all((ROOT / file).is_file() for file in files)
    config = "prometheus.yml" if name == "prometheus" else "grafana.ini"
    assert binds[0]["target"] in (ROOT / "compose/monitoring" / config).read_text()


def test_redis_writes_nothing_to_disk_and_is_bounded():
    """Incident 12: its snapshots saturated the disk and NATS hung."""
    assert "--maxmemory" in SERVICES["redis"]["command"]
    assert ' --save "" --maxmemory-policy allkeys-lru "$@"\n' in (ROOT / "compose/redis/with-password").read_text()
    assert SERVICES["redis"]["volumes"][1:] == [SECRETS]


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
    file = tmp_path / "tick"
    kind, script, watched, seconds = WORKERS["celerybeat"]["healthcheck"]["test"]
    assert (kind, watched) == ("CMD", containers.TICK_FILE)
    assert f"ANTENNA_BEAT_TICK_FILE={watched}" in DOCKERFILE
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
