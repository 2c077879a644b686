"""Fixtures: the network, the volumes and the servers, under the names that pytest-celery has for them."""

import json
from typing import Any

import pytest

from ami.topology import definitions
from ami.topology.topology import load
from tests.support.celery_suite.containers import Broker, Database, Results, Server
from tests.support.celery_suite.vendor import (
    CeleryBackendCluster,
    CeleryBrokerCluster,
    CeleryTestBackend,
    RabbitMQTestBroker,
    container,
    fxtr,
    network,
    volume,
)
from tests.support.containers.deployment import new_variables
from tests.support.place import ROOT

#: All that these fixtures make carries it.
LABEL = "antenna.suite"
LABELS = {LABEL: "{run_name}"}
NETWORK = "{default_pytest_celery_network.name}"

#: Any free port of this machine, for this machine alone.
LOCAL = ("127.0.0.1", None)

#: Numbers that are other than the table's: small enough to be reached.
CHANGED = {
    "ANTENNA_FALLBACK_CONCURRENCY": "1",
    "ANTENNA_FALLBACK_MAX_MEMORY_PER_CHILD_KIB": str(256 * 1024),
    "ANTENNA_FALLBACK_HARD_MEMORY_PER_CHILD_KIB": str(448 * 1024),
    "ANTENNA_FALLBACK_CONTAINER_MEMORY_KIB": str(768 * 1024),
}


@pytest.fixture(scope="package")
def variables() -> dict[str, str]:
    """The variables of `.env`, with secrets of this run."""
    return new_variables(**CHANGED)


default_pytest_celery_network = network(scope="package", name="antenna-suite-{run_name}", labels=LABELS)

# Named, so that they are removed: whoever leaves an image's VOLUME to the engine gets a volume that nobody removes.
rabbitmq_volume = volume(scope="package", name="antenna-suite-{run_name}-rabbitmq", labels=LABELS)
redis_volume = volume(scope="package", name="antenna-suite-{run_name}-redis", labels=LABELS)
postgres_volume = volume(scope="package", name="antenna-suite-{run_name}-postgres", labels=LABELS)
files_volume = volume(scope="package", name="antenna-suite-{run_name}-files", labels=LABELS)


# The broker.


@pytest.fixture(scope="package")
def default_rabbitmq_broker_image() -> str:
    return "rabbitmq:3-management"


@pytest.fixture(scope="package")
def default_rabbitmq_broker_env(variables: dict[str, str]) -> dict[str, str]:
    return {
        "RABBITMQ_DEFAULT_USER": variables["RABBITMQ_USER"],
        "RABBITMQ_DEFAULT_PASS": variables["RABBITMQ_PASSWORD"],
        "RABBITMQ_DEFAULT_VHOST": variables["RABBITMQ_VHOST"],
    }


@pytest.fixture(scope="package")
def default_rabbitmq_broker_ports() -> dict[str, Any]:
    return {"5672/tcp": LOCAL}


@pytest.fixture(scope="package")
def default_rabbitmq_broker_volumes(
    variables: dict[str, str], rabbitmq_volume: Any, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    """Its data, its configuration as deployed, and the definitions that it loads."""
    folder = tmp_path_factory.mktemp("definitions")
    folder.chmod(0o755)
    account = definitions.Account(*(variables[f"RABBITMQ_{name}"] for name in ("USER", "PASSWORD", "VHOST")))
    (folder / "antenna.json").write_text(json.dumps(definitions.render(load({}), account)))
    return {
        rabbitmq_volume.name: {"bind": "/var/lib/rabbitmq", "mode": "rw"},
        str(folder): {"bind": "/definitions", "mode": "ro"},
        str(ROOT / "compose/rabbitmq/antenna.conf"): {"bind": "/etc/rabbitmq/conf.d/20-antenna.conf", "mode": "ro"},
    }


default_rabbitmq_broker = container(
    scope="package",
    name="antenna-suite-{run_name}-rabbitmq",
    image="{default_rabbitmq_broker_image}",
    ports=fxtr("default_rabbitmq_broker_ports"),
    environment=fxtr("default_rabbitmq_broker_env"),
    volumes=fxtr("default_rabbitmq_broker_volumes"),
    network=NETWORK,
    labels=LABELS,
    wrapper_class=Broker,
    timeout=120,
)


@pytest.fixture(scope="package")
def celery_broker(default_rabbitmq_broker: Broker) -> RabbitMQTestBroker:
    return RabbitMQTestBroker(default_rabbitmq_broker)


@pytest.fixture(scope="package")
def celery_broker_cluster(celery_broker: RabbitMQTestBroker) -> CeleryBrokerCluster:
    return CeleryBrokerCluster(celery_broker)


# Results and the cache.


@pytest.fixture(scope="package")
def default_redis_backend_image() -> str:
    return "redis:7"


@pytest.fixture(scope="package")
def default_redis_backend_env(variables: dict[str, str]) -> dict[str, str]:
    return {"REDIS_PASSWORD": variables["REDIS_PASSWORD"]}


@pytest.fixture(scope="package")
def default_redis_backend_command(variables: dict[str, str]) -> list[str]:
    return Results.command("--requirepass", variables["REDIS_PASSWORD"])


default_redis_backend = container(
    scope="package",
    name="antenna-suite-{run_name}-redis",
    image="{default_redis_backend_image}",
    ports={"6379/tcp": LOCAL},
    environment=fxtr("default_redis_backend_env"),
    command=fxtr("default_redis_backend_command"),
    volumes={"{redis_volume.name}": {"bind": "/data", "mode": "rw"}},
    network=NETWORK,
    labels=LABELS,
    wrapper_class=Results,
    timeout=60,
)


@pytest.fixture(scope="package")
def celery_backend(default_redis_backend: Results) -> CeleryTestBackend:
    return CeleryTestBackend(default_redis_backend)


@pytest.fixture(scope="package")
def celery_backend_cluster(celery_backend: CeleryTestBackend) -> CeleryBackendCluster:
    return CeleryBackendCluster(celery_backend)


# What else a process asks for before it starts: the database and NATS.


@pytest.fixture(scope="package")
def postgres_env(variables: dict[str, str]) -> dict[str, str]:
    return {name: variables[name] for name in ("POSTGRES_USER", "POSTGRES_PASSWORD", "POSTGRES_DB")}


postgres = container(
    scope="package",
    name="antenna-suite-{run_name}-postgres",
    image="postgres:15",
    ports={"5432/tcp": LOCAL},
    environment=fxtr("postgres_env"),
    # Nothing here has to survive a power failure.
    command=["postgres", "-c", "fsync=off"],
    volumes={"{postgres_volume.name}": {"bind": "/var/lib/postgresql/data", "mode": "rw"}},
    network=NETWORK,
    labels=LABELS,
    wrapper_class=Database,
    timeout=60,
)


@pytest.fixture(scope="package")
def nats_command(variables: dict[str, str]) -> list[str]:
    login = ["--user", variables["NATS_USER"], "--pass", variables["NATS_PASSWORD"]]
    return ["--jetstream", "--store_dir", "/tmp/jetstream", *login]  # noqa: S108 - inside its container


nats = container(
    scope="package",
    name="antenna-suite-{run_name}-nats",
    image="nats:2",
    command=fxtr("nats_command"),
    network=NETWORK,
    labels=LABELS,
    wrapper_class=Server,
)
