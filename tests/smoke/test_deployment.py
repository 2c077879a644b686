"""Both compose files from a clean start: everything healthy, every door open, each task where it belongs."""

import json
import uuid

import pytest

from ami.topology.table import FALLBACK, ROWS
from ami.topology.topology import override_name
from ami.topology.workload import Workload
from tests.support.containers.deployment import LOGINS, QUEUES, WORKERS, Deployment
from tests.support.containers.effects import Effects, publisher, send
from tests.support.containers.engine import docker, inspect, until

LASTING = (*WORKERS, "celerybeat", "web", "proxy", "flower", "processing", "rabbitmq", "redis", "postgres")
IMAGES = ("antenna:smoke", "antenna-processing:smoke", "antenna-objects:smoke")
MOST_BYTES = 350_000_000
#: The user in DATABASE_URL with what it may do beyond its own database, and who owns the tables.
KNOWN_TO_POSTGRES = """
import json, os, psycopg
rights = "rolname, rolsuper, rolcreaterole, rolcreatedb, rolreplication, rolbypassrls"
with psycopg.connect(os.environ["DATABASE_URL"]) as database:
    user = database.execute(f"SELECT {rights} FROM pg_roles WHERE rolname = current_user").fetchone()
    owners = database.execute("SELECT DISTINCT tableowner FROM pg_tables WHERE schemaname = 'public'").fetchall()
print(json.dumps([user, [owner for (owner,) in owners]]))
"""
KNOWN_INSIDE = "from ami.governor.probes.cgroup import Cgroup; print(Cgroup().memory()[1])"


@pytest.mark.parametrize("service", LASTING)
def test_every_service_is_healthy(deployment: Deployment, service: str):
    assert deployment.health(service) == "healthy"
    assert deployment.is_healthy(service), "as the compose files ask it"


def test_it_runs_on_production_s_settings(deployment: Deployment):
    assert deployment.execute("web", "printenv", "DJANGO_SETTINGS_MODULE").strip() == "config.settings.production"


@pytest.mark.parametrize("service", ["setup", "definitions"])
def test_what_is_done_once_is_done(deployment: Deployment, service: str):
    state = deployment.state(service)
    assert (state["Status"], state["ExitCode"]) == ("exited", 0)


def test_a_task_runs_on_the_worker_of_its_queue(deployment: Deployment, effects: Effects):
    batch = uuid.uuid4().hex
    with publisher(deployment) as app:
        for queue in QUEUES:
            send(app, "smoke.effect", [f"{batch}-{queue}"], queue)
        send(app, "smoke.effect", [f"{batch}-nowhere"])
    until(lambda: len(effects.ended(batch)) == len(QUEUES) + 1, 60, "every task ran")
    ran = {row.key.removeprefix(f"{batch}-"): row.node.split("@")[0] for row in effects.rows(batch)}
    nodes = {row.queue: row.key.lower() for row in ROWS if not row.enabled_by}
    assert ran == {**nodes, "nowhere": nodes[FALLBACK]}


@pytest.mark.parametrize("service", [*WORKERS, "celerybeat", "web", "flower"])
def test_a_container_runs_as_nobody_and_cannot_write_to_its_image(deployment: Deployment, service: str):
    assert deployment.execute(service, "id", "-u").strip() == "10001"
    assert "Read-only file system" in deployment.execute(service, "sh", "-c", "touch /app/x 2>&1; true")
    config = inspect(deployment.container(service))["HostConfig"]
    assert config["ReadonlyRootfs"] is True
    assert config["CapDrop"] == ["ALL"]


def test_the_processing_service_reaches_web_where_pushed_links_lead(deployment: Deployment):
    settings = "from django.conf import settings; print(settings.ANTENNA_SERVICES_URL)"
    base = deployment.execute("celeryworker", "python", "-c", settings).strip()
    ask = "import sys, urllib.request as http; print(http.urlopen(sys.argv[1], timeout=10).status)"
    assert deployment.execute("processing", "python", "-c", ask, f"{base}/livez").strip() == "200"


@pytest.mark.parametrize("row", [row for row in ROWS if not row.enabled_by], ids=lambda row: row.queue)
def test_a_container_has_the_memory_that_its_topology_says(deployment: Deployment, row: Workload):
    told = json.loads(deployment.execute(row.service, "python", "-m", "ami.topology", "table", "--json"))
    (inside,) = [each for each in told["workloads"] if each["queue"] == row.queue]
    kib = int(deployment.variables.get(override_name(row, "container_memory_kib"), row.memory_limit_kib))
    assert inside["memory_limit_kib"] == kib
    limits = inspect(deployment.container(row.service))["HostConfig"]
    assert (limits["Memory"], limits["MemorySwap"]) == (kib * 1024, kib * 1024)
    known = deployment.execute(row.service, "python", "-c", KNOWN_INSIDE)
    assert int(known) == kib * 1024, "the kernel's, as the governor reads it"


@pytest.mark.parametrize("service", ["proxy", "rabbitmq", "redis", "postgres"])
def test_a_service_of_others_runs_without_a_capability(deployment: Deployment, service: str):
    """Most entrypoints begin with five, and become a user who has none and gets none."""
    status = deployment.execute(service, "cat", "/proc/1/status")
    assert "\nCapEff:\t0000000000000000\n" in status
    assert "\nNoNewPrivs:\t1\n" in status


@pytest.mark.parametrize(
    ("service", "gib"), [("rabbitmq", 4), ("redis", 1), ("postgres", 4), ("nats", 1), ("proxy", 2)]
)
def test_service_of_others_has_a_memory_limit(deployment: Deployment, service: str, gib: int):
    assert inspect(deployment.container(service))["HostConfig"]["Memory"] == gib * 1024**3


@pytest.mark.parametrize("service", [*LASTING, "nats"])
def test_no_list_of_processes_shows_a_secret(deployment: Deployment, service: str):
    found = inspect(deployment.container(service))
    line = json.dumps([found["Path"], found["Args"], found["Config"].get("Healthcheck")])
    secrets = {value for name, value in deployment.variables.items() if "PASSWORD" in name or "SECRET" in name}
    assert [secret for secret in secrets if secret and secret in line] == []


@pytest.mark.parametrize("service", [*WORKERS, "celerybeat", "web", "flower"])
def test_no_process_of_ours_sees_a_login_of_the_services(deployment: Deployment, service: str):
    environment = inspect(deployment.container(service))["Config"]["Env"]
    names = {line.partition("=")[0] for line in environment}
    assert "CELERY_BROKER_URL" in names
    assert not names & LOGINS
    assert deployment.variables["POSTGRES_PASSWORD"] not in str(environment)


def test_user_of_a_worker_owns_the_tables_and_is_not_a_superuser(deployment: Deployment):
    rights, owners = json.loads(deployment.execute("celeryworker", "python", "-c", KNOWN_TO_POSTGRES))
    assert rights == [deployment.variables["DATABASE_USER"], False, False, False, False, False]
    assert owners == [deployment.variables["DATABASE_USER"]]


@pytest.mark.parametrize("image", IMAGES[:1])
def test_the_image_is_small_and_holds_no_compiler_no_secret_and_its_labels(deployment: Deployment, image: str):
    (found,) = json.loads(docker("image", "inspect", image))
    assert found["Size"] < MOST_BYTES, "on the base that is there; the base itself counts"
    labels = found["Config"]["Labels"]
    assert labels["org.opencontainers.image.title"] == "antenna"
    assert labels["org.opencontainers.image.version"] == deployment.variables["ANTENNA_VERSION"]
    everything = json.dumps(found) + docker("history", "--no-trunc", image)
    for name, value in deployment.variables.items():
        assert not ("PASSWORD" in name or "SECRET_KEY" in name) or value not in everything
    assert docker("run", "--rm", image, "sh", "-c", "command -v gcc cc make pip; true").strip() in (
        "",
        "/usr/local/bin/pip",
    )


@pytest.mark.parametrize("image", IMAGES[:1])
def test_image_has_no_file_to_copy_into_a_new_volume(deployment: Deployment, image: str):
    """The engine copies it once for each container that is created, and two copies at a time fail: "file exists"."""
    assert docker("run", "--rm", image, "ls", "-A", "/data").strip() == ""


@pytest.mark.parametrize("service", [*LASTING, "nats"])
def test_no_container_has_a_volume_without_a_name_that_down_would_leave_behind(deployment: Deployment, service: str):
    mounts = inspect(deployment.container(service))["Mounts"]
    volumes = [mount["Name"] for mount in mounts if mount["Type"] == "volume"]
    assert [name for name in volumes if not name.startswith(f"{deployment.project}_")] == []


def test_the_live_check_finds_no_fault(deployment: Deployment):
    found = json.loads(deployment.execute("celeryworker", "python", "manage.py", "queues", "check", "--live", "--json"))
    assert [finding for finding in found if finding.get("level") == "error"] == []
