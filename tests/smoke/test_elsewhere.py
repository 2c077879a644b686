"""Workers that start before their services, or at other addresses: they say for what they wait, and where."""

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.containers.deployment import FILES, WORKERS, Deployment, new_variables, with_own_tasks
from tests.support.containers.effects import Effects, publisher, send
from tests.support.containers.engine import docker, inspect
from tests.support.place import ROOT, until

SERVICE, QUEUE = "celeryworker", "antenna"
FIRST, LATE = ("rabbitmq", "redis", "nats"), "postgres"

#: The services' names in the network of the workers, where none of them is called as compose calls it.
NAMES = {
    "rabbitmq": "broker.elsewhere",
    "redis": "cache.elsewhere",
    "postgres": "db.elsewhere",
    "nats": "nats.elsewhere",
}
SAYS_WITHIN_SECONDS = 10


@pytest.fixture(scope="module")
def services(deployment: Deployment, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """Another project of both files, of which the database was not started; the images are the deployment's."""
    folder = tmp_path_factory.mktemp("services")
    images = {name: value for name, value in deployment.variables.items() if name.endswith("_IMAGE")}
    made = Deployment(folder, new_variables(**images), files=[*(ROOT / name for name in FILES), own_tasks(folder)])
    try:
        made.up(*FIRST)
        yield made
    finally:
        made.down("--volumes")


@pytest.fixture(scope="module")
def workers(services: Deployment, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """A project of the worker file alone, with services' addresses in a network of its own."""
    folder = tmp_path_factory.mktemp("workers")
    made = Deployment(folder, addresses(services), files=[ROOT / "docker-compose.worker.yml", own_tasks(folder)])
    try:
        made.compose("up", "--no-start")
        for service, name in NAMES.items():
            docker("network", "connect", "--alias", name, f"{made.project}_default", services.container(service))
        yield made
    finally:
        # A network that somebody else's container is in would stay.
        for service in NAMES:
            docker(
                "network", "disconnect", "--force", f"{made.project}_default", services.container(service), check=False
            )
        made.down("--volumes")
    assert made.left() == {"containers": [], "networks": [], "volumes": []}


def own_tasks(folder: Path) -> Path:
    return with_own_tasks(folder, WORKERS, "smoke_tasks")


def addresses(services: Deployment) -> dict[str, str]:
    """Return the variables of the services, with the names that they have elsewhere."""
    found = dict(services.variables)
    for name in ("CELERY_BROKER_URL", "RABBITMQ_MANAGEMENT_URL", "REDIS_URL", "DATABASE_URL", "NATS_URL"):
        for service, other in NAMES.items():
            found[name] = found[name].replace(f"@{service}:", f"@{other}:")
    return found


def said(deployment: Deployment) -> str:
    return deployment.logs("--no-log-prefix", SERVICE)


def until_said(deployment: Deployment, sentence: str, seconds: float) -> None:
    until(lambda: sentence in said(deployment), seconds, f"it says: {sentence}; it said:\n{said(deployment)[-2000:]}")


def test_a_worker_waits_for_a_database_that_starts_late_and_says_so(services: Deployment):
    services.compose("up", "--detach", SERVICE)
    until_said(services, "Waiting for PostgreSQL at postgres:5432 (DATABASE_URL): ", SAYS_WITHIN_SECONDS)
    assert services.health(SERVICE) == "starting"
    services.up(LATE)
    until_said(services, "PostgreSQL answers after", 30)
    until_said(services, "Waiting for the migrations", 30)
    services.compose("run", "--rm", "--no-TTY", "setup")
    until_said(services, "The migrations are applied after", 30)
    services.until_healthy(SERVICE)
    assert inspect(services.container(SERVICE))["RestartCount"] == 0, "it waited, and was not started again and again"
    services.compose("rm", "--stop", "--force", SERVICE)


def test_incident_10_a_wrong_address_is_named_with_its_variable_at_once(services: Deployment, workers: Deployment):
    right = workers.variables
    wrong = {
        "CELERY_BROKER_URL": right["CELERY_BROKER_URL"].replace("broker.", "nobody."),
        "REDIS_URL": right["REDIS_URL"].replace(":6379", ":6380"),
    }
    mistaken = replace(workers, folder=workers.folder / "wrong", variables=right | wrong)
    began = time.monotonic()
    mistaken.compose("up", "--detach", SERVICE)
    for sentence in (
        "Waiting for RabbitMQ at nobody.elsewhere:5672 (CELERY_BROKER_URL): the name is not known",
        "Waiting for Redis at cache.elsewhere:6380 (REDIS_URL): connection refused",
    ):
        until_said(mistaken, sentence, SAYS_WITHIN_SECONDS - (time.monotonic() - began))
    print(f"both said {time.monotonic() - began:.1f} s after `up`")
    assert mistaken.health(SERVICE) != "healthy"
    assert services.variables["RABBITMQ_PASSWORD"] not in said(mistaken)


def test_incident_10_the_worker_file_alone_runs_tasks_with_services_elsewhere(
    services: Deployment, workers: Deployment
):
    workers.up()
    urls = [line for line in inspect(workers.container(SERVICE))["Config"]["Env"] if "://" in line]
    assert [url for url in urls if "localhost" in url or "127.0.0.1" in url] == []
    effects, key = Effects(services.database_url), f"elsewhere-{time.time_ns()}"
    with publisher(services) as app:
        send(app, "smoke.effect", [f"{key}-fallback"], QUEUE)
        send(app, "smoke.effect", [f"{key}-ingest"], "antenna-ingest")
    until(lambda: len(effects.ended(key)) == 2, 30, "they run")
    assert {row.node.split("@")[0] for row in effects.rows(key)} == {"fallback", "ingest"}


@pytest.mark.parametrize("name", ["CELERY_BROKER_URL", "REDIS_URL", "DATABASE_URL", "NATS_URL", "DJANGO_SECRET_KEY"])
def test_incident_10_without_an_address_there_is_no_start_and_no_default(
    workers: Deployment, name: str, tmp_path: Path
):
    without = replace(workers, folder=tmp_path, variables={k: v for k, v in workers.variables.items() if k != name})
    with pytest.raises(AssertionError, match=f"set {name} in .env, see .env.example"):
        without.compose("up", "--detach", SERVICE)
