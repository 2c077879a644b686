"""Fixtures: this project's own processes, each in the container that the compose files give it."""

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest
from docker import DockerClient

from ami.queues.celery import AntennaCelery
from config.settings.brokers import transport_options
from tests.support.celery_suite.containers import WORKERS, Beat, Database, Flower, Server, Worker
from tests.support.celery_suite.servers import LABEL, LABELS, LOCAL, NETWORK
from tests.support.celery_suite.services import ARGUMENTS, arguments, services
from tests.support.celery_suite.vendor import (
    CeleryBackendCluster,
    CeleryBrokerCluster,
    CeleryTestSetup,
    CeleryTestWorker,
    CeleryWorkerCluster,
    container,
)
from tests.support.containers.engine import docker
from tests.support.place import ROOT


@pytest.fixture(scope="package")
def antenna_image() -> str:
    """The image of this checkout, built."""
    file = str(ROOT / "compose/Dockerfile")
    docker("build", "--file", file, "--target", "antenna", "--tag", "antenna:smoke", str(ROOT), timeout=900)
    return "antenna:smoke"


@pytest.fixture(scope="package")
def compose_services(
    variables: dict[str, str],
    celery_broker_cluster: CeleryBrokerCluster,
    celery_backend_cluster: CeleryBackendCluster,
    postgres: Database,
    nats: Server,
    files_volume: Any,
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[str, dict[str, Any]]:
    """What docker-py is told for every service of the compose files."""
    urls = {
        "CELERY_BROKER_URL": celery_broker_cluster.config()["urls"][0],
        "REDIS_URL": celery_backend_cluster.config()["urls"][0],
        "DATABASE_URL": postgres.url,
        "NATS_URL": variables["NATS_URL"].replace("@nats:", f"@{nats.hostname}:"),
    }
    read = services({**variables, **urls}, tmp_path_factory.mktemp("compose"))
    return {name: arguments(service, files_volume.name) for name, service in read.items()}


@pytest.fixture(scope="package")
def migrated(
    docker_client: DockerClient,
    compose_services: dict[str, dict[str, Any]],
    default_pytest_celery_network: Any,
    antenna_image: str,
    run_name: str,
) -> None:
    """The service `setup`, which ends when database, broker and schedule are ready."""
    told = {**compose_services["setup"], "restart_policy": None}
    name = default_pytest_celery_network.name
    docker_client.containers.run(antenna_image, network=name, labels={LABEL: run_name}, remove=True, **told)


def container_of(service: str, wrapper_class: type, **changes: Any) -> Any:
    """Return the fixture that starts the container of a service of the compose files."""

    def told(argument: str) -> Callable[..., Any]:
        return lambda compose_services, migrated: compose_services[service].get(argument)

    return container(
        scope="package",
        name=f"antenna-suite-{{run_name}}-{service}",
        image="{antenna_image}",
        network=NETWORK,
        labels=LABELS,
        wrapper_class=wrapper_class,
        timeout=90,
        **{argument: told(argument) for argument in ARGUMENTS} | changes,
    )


def worker_of(service: str) -> Any:
    """Return the fixture of a worker's container; pytest-celery says which broker and which results it gets."""

    def environment(compose_services: dict[str, Any], celery_worker_cluster_config: dict[str, Any]) -> dict[str, str]:
        return WORKERS[service].initial_env(celery_worker_cluster_config, compose_services[service]["environment"])

    return container_of(service, WORKERS[service], environment=environment)


ingest_container = worker_of("celeryworker_ingest")
housekeeping_container = worker_of("celeryworker_housekeeping")
interactive_container = worker_of("celeryworker_interactive")
fallback_container = worker_of("celeryworker")
beat = container_of("celerybeat", Beat)
flower = container_of("flower", Flower, ports={"5555/tcp": LOCAL})


@pytest.fixture(scope="package")
def celery_worker_cluster_config(
    celery_broker_cluster: CeleryBrokerCluster, celery_backend_cluster: CeleryBackendCluster
) -> dict[str, Any]:
    return {
        "celery_broker_cluster_config": celery_broker_cluster.config(),
        "celery_backend_cluster_config": celery_backend_cluster.config(),
    }


@pytest.fixture(scope="package")
def celery_worker_cluster(
    ingest_container: Worker,
    housekeeping_container: Worker,
    interactive_container: Worker,
    fallback_container: Worker,
    celery_setup_app: AntennaCelery,
) -> CeleryWorkerCluster:
    """One worker per queue, each in a container of its own."""
    mine = (ingest_container, housekeeping_container, interactive_container, fallback_container)
    return CeleryWorkerCluster(*(CeleryTestWorker(one, celery_setup_app) for one in mine))


class Setup(CeleryTestSetup):
    """pytest-celery's whole of brokers, results and workers, with this project's application to publish from."""

    @classmethod
    def create_setup_app(cls, celery_setup_config: dict[str, Any], celery_setup_app_name: str) -> AntennaCelery:
        app = AntennaCelery(celery_setup_app_name, set_as_current=False)
        app.config_from_object("django.conf:settings", namespace="CELERY")
        url = celery_setup_config["broker_url"]
        also = {"broker_read_url": url, "broker_write_url": url, "broker_transport_options": transport_options(url)}
        app.conf.update(celery_setup_config, **also)
        return app


@pytest.fixture(scope="package")
def celery_setup_app(celery_worker_cluster_config: dict[str, Any]) -> Iterator[AntennaCelery]:
    app = Setup.create_setup_app(Setup.config(celery_worker_cluster_config), Setup.name())
    with closing(app):
        yield app


@pytest.fixture(scope="package")
def celery_setup(
    celery_worker_cluster: CeleryWorkerCluster,
    celery_broker_cluster: CeleryBrokerCluster,
    celery_backend_cluster: CeleryBackendCluster,
    celery_setup_app: AntennaCelery,
    beat: Beat,
) -> Setup:
    """All of it, started and answering."""
    made = Setup(celery_worker_cluster, celery_broker_cluster, celery_backend_cluster, celery_setup_app)
    assert made.ready(control=True)
    return made
