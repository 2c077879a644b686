"""Workers that start before their services, at other addresses, or with secrets from files."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

import pytest

from config.schema.environment import secrets
from tests.support.containers.alone import Alone
from tests.support.containers.deployment import (
    FILES,
    LOGINS,
    WORKERS,
    Deployment,
    frugal,
    new_variables,
    with_own_tasks,
    write,
)
from tests.support.containers.effects import Effects, publisher, send
from tests.support.containers.engine import docker, inspect, until
from tests.support.containers.registry import registry
from tests.support.place import ROOT
from tests.support.soak import soak

SERVICE, QUEUE = "celeryworker", "antenna"
FIRST, LATE = ("rabbitmq", "redis", "nats"), "postgres"
NEEDED = ("setup", SERVICE, *FIRST, LATE)

#: What our processes read, and what the services beside them do.
OURS = tuple(each.name for each in secrets() if each.written and each.needed_by) + ("RABBITMQ_MANAGEMENT_URL",)
THEIRS = ("RABBITMQ_PASSWORD", "REDIS_PASSWORD", "POSTGRES_PASSWORD", "DATABASE_PASSWORD", "NATS_USER", "NATS_PASSWORD")
SECRETS = (*OURS, *THEIRS)

#: Passwords that would end, change or cut off the text that holds them if they were not quoted there.
ODD = {
    "REDIS_PASSWORD": 'a"b\\c # $d',
    "POSTGRES_PASSWORD": "e'f\\g \" $h",
    "DATABASE_PASSWORD": "i'j\\'k \"l `m` $(n) # %o",
    "NATS_PASSWORD": "0071'$(x)",
}

#: The services' names in the network of the workers, where none of them is called as compose calls it.
NAMES = {
    "rabbitmq": "broker.elsewhere",
    "redis": "cache.elsewhere",
    "postgres": "db.elsewhere",
    "nats": "nats.elsewhere",
}
#: Of the worker file alone; all that it has under `make soak`.
ELSEWHERE = soak((SERVICE, "celeryworker_ingest", "celerybeat"), ())
SAYS_WITHIN_SECONDS = 60


def as_files(folder: Path, variables: dict[str, str]) -> dict[str, str]:
    """Write each secret to a file that containers may read, and return the variables that name the files instead."""
    folder.mkdir()
    found = {**variables, "ANTENNA_SECRETS_FOLDER": str(folder)}
    for name in SECRETS:
        (folder / name.lower()).write_text(variables[name] + "\n")
        found[name], found[f"{name}_FILE"] = "", f"/run/secrets/{name.lower()}"
    return found


def odd(variables: dict[str, str]) -> dict[str, str]:
    """Return the variables with odd passwords, also in the URLs."""
    urls = {"REDIS_PASSWORD": "REDIS_URL", "DATABASE_PASSWORD": "DATABASE_URL", "NATS_PASSWORD": "NATS_URL"}
    changed = {
        url: variables[url].replace(variables[name], quote(ODD[name], safe="'$()")) for name, url in urls.items()
    }
    return variables | ODD | changed


@pytest.fixture(scope="module")
def services(images: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """A project of both files whose secrets are files, and of which the database was not started."""
    folder, plain = tmp_path_factory.mktemp("services"), odd(new_variables())
    folder.chmod(0o755)
    files = [ROOT / name for name in FILES]
    made = Deployment(folder / "deployment", as_files(folder / "secrets", plain), files=files, plain=plain)
    made.files = [*files, own_tasks(folder, made)]
    try:
        made.up(*FIRST)
        yield made
    finally:
        made.down("--volumes")


@pytest.fixture(scope="module")
def complete(services: Deployment) -> Deployment:
    """The same with its database, and with one worker."""
    if not services.containers(SERVICE):
        services.up("--no-deps", LATE)
        services.compose("up", "--detach", "--no-deps", "setup", SERVICE)
        services.until_healthy(SERVICE)
    return services


@pytest.fixture(scope="module")
def secrets(complete: Deployment) -> list[str]:
    """What only files hold there."""
    return [complete.plain[name] for name in SECRETS]


@pytest.fixture(scope="module")
def workers(complete: Deployment, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """A project of the worker file alone, with services' addresses in a network of its own."""
    folder, files = tmp_path_factory.mktemp("workers"), [ROOT / "docker-compose.worker.yml"]
    made = Deployment(folder, addresses(complete), files=files)
    made.files = [*files, own_tasks(folder, made)]
    try:
        made.compose("up", "--no-start")
        with connected(made, complete):
            yield made
    finally:
        made.down("--volumes")
    assert made.left() == {"containers": [], "networks": [], "volumes": []}


@contextmanager
def connected(made: Deployment, services: Deployment) -> Iterator[None]:
    """Give a project the services of another one, under their names elsewhere."""
    network = f"{made.project}_default"
    try:
        for service, name in NAMES.items():
            docker("network", "connect", "--alias", name, network, services.container(service))
        yield
    finally:
        # A network that a container of another project is in would stay.
        for service in NAMES:
            docker("network", "disconnect", "--force", network, services.container(service), check=False)


def own_tasks(folder: Path, made: Deployment) -> Path:
    return with_own_tasks(folder, WORKERS, "smoke_tasks", frugal(made.declared))


def addresses(services: Deployment) -> dict[str, str]:
    """Return the variables of the services, with the names that they have elsewhere."""
    found = dict(services.plain)
    for name in ("CELERY_BROKER_URL", "RABBITMQ_MANAGEMENT_URL", "REDIS_URL", "DATABASE_URL", "NATS_URL"):
        for service, other in NAMES.items():
            found[name] = found[name].replace(f"@{service}:", f"@{other}:")
    return found


def said(deployment: Deployment) -> str:
    return deployment.logs(SERVICE)


def until_said(deployment: Deployment, sentence: str, seconds: float) -> None:
    until(lambda: sentence in said(deployment), seconds, f"it says: {sentence}; it said:\n{said(deployment)[-2000:]}")


def test_a_worker_waits_for_a_database_that_starts_late_and_says_so(services: Deployment):
    services.compose("rm", "--stop", "--force", SERVICE, LATE)
    docker("volume", "rm", "--force", f"{services.project}_{LATE}")
    services.compose("up", "--detach", SERVICE)
    until_said(services, "Waiting for PostgreSQL at postgres:5432 (DATABASE_URL): ", SAYS_WITHIN_SECONDS)
    assert services.health(SERVICE) == "starting"
    services.up("--no-deps", LATE)
    until_said(services, "PostgreSQL answers after", 60)
    until_said(services, "Waiting for the migrations", 60)
    services.compose("up", "--detach", "--no-deps", "setup")
    until_said(services, "The migrations are applied after", 120)
    services.until_healthy(SERVICE)
    assert inspect(services.container(SERVICE))["RestartCount"] == 0, "it waited, and was not started again and again"


def test_a_worker_starts_and_answers_with_secrets_from_files(complete: Deployment):
    assert complete.is_healthy(SERVICE)
    answers = json.loads(complete.execute(SERVICE, "celery", "-A", "config", "inspect", "ping", "--json"))
    assert [node.split("@")[0] for node in answers] == ["fallback"]


@pytest.mark.parametrize("service", [*NEEDED, "definitions"])
def test_the_engine_is_told_no_secret_and_no_log_shows_one(complete: Deployment, secrets: list[str], service: str):
    told = json.dumps(inspect(complete.container(service)), ensure_ascii=False) + complete.logs(service)
    # A user's name is part of many words.
    secrets = [secret for secret in secrets if secret != complete.plain["NATS_USER"]]
    assert [secret for secret in secrets if secret in told or json.dumps(secret)[1:-1] in told] == []


def test_what_is_asked_for_and_is_not_there_is_named(complete: Deployment, secrets: list[str]):
    ask = "python -m config.waiting true 2>&1; echo $?"
    said = complete.execute(SERVICE, "sh", "-c", ask, REDIS_URL_FILE="/run/secrets/nowhere")
    assert said.endswith("\n1\n"), said
    assert "REDIS_URL_FILE" in said
    assert "/run/secrets/nowhere" in said
    assert [secret for secret in secrets if secret in said] == []


def test_incident_10_a_wrong_address_is_named_with_its_variable_at_once(complete: Deployment, workers: Deployment):
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
        until_said(mistaken, sentence, SAYS_WITHIN_SECONDS)
    print(f"both said {time.monotonic() - began:.1f} s after `up`")
    assert mistaken.health(SERVICE) != "healthy"
    assert not mistaken.is_healthy(SERVICE)
    assert complete.plain["RABBITMQ_PASSWORD"] not in said(mistaken)


def test_incident_10_the_worker_file_alone_runs_tasks_with_services_elsewhere(
    complete: Deployment, workers: Deployment
):
    complete.compose("stop", "--timeout", "1", SERVICE)
    workers.up(*ELSEWHERE)
    urls = [line for line in inspect(workers.container(SERVICE))["Config"]["Env"] if "://" in line]
    assert [url for url in urls if "localhost" in url or "127.0.0.1" in url] == []
    key = f"elsewhere-{time.time_ns()}"
    with Effects(complete.database_url) as effects:
        with publisher(complete) as app:
            send(app, "smoke.effect", [f"{key}-fallback"], QUEUE)
            send(app, "smoke.effect", [f"{key}-ingest"], "antenna-ingest")
        until(lambda: len(effects.ended(key)) == 2, 60, "they run")
        assert {row.node.split("@")[0] for row in effects.rows(key)} == {"fallback", "ingest"}


@pytest.mark.parametrize("name", ["CELERY_BROKER_URL", "REDIS_URL", "DATABASE_URL", "NATS_URL", "DJANGO_SECRET_KEY"])
def test_incident_10_without_an_address_there_is_no_start_and_no_default(
    workers: Deployment, name: str, tmp_path: Path
):
    without = replace(workers, folder=tmp_path, variables={k: v for k, v in workers.variables.items() if k != name})
    without.compose("up", "--detach", SERVICE)
    until_said(without, f"Configuration refused: {name} ", SAYS_WITHIN_SECONDS)
    assert without.health(SERVICE) != "healthy"


@pytest.fixture(scope="module")
def pullable(images: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The name of our image in a registry; the engine does not have it under that name."""
    with registry("antenna:smoke", tmp_path_factory.mktemp("registry")) as name:
        yield name


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[Alone]:
    made = Alone(tmp_path / "alone", {})
    try:
        yield made
    finally:
        made.down("--volumes")


def test_worker_file_in_an_empty_folder_names_all_that_is_missing(alone: Alone, pullable: str):
    alone.compose("up", "--detach", ANTENNA_IMAGE=pullable)
    for service in (*WORKERS, "celerybeat"):
        (first,) = until(lambda name=service: alone.logs(name).splitlines()[:1], SAYS_WITHIN_SECONDS, f"{service} says")
        assert "CELERY_BROKER_URL" in first
        assert "DATABASE_URL" in first


def test_worker_file_beside_an_env_file_starts_healthy_workers(complete: Deployment, alone: Alone, pullable: str):
    ours = {name: value for name, value in addresses(complete).items() if name not in LOGINS}
    write(alone.folder / ".env", ours | {"ANTENNA_IMAGE": pullable})
    alone.compose("up", "--no-start")
    with connected(alone, complete):
        alone.up(SERVICE, "celerybeat")
        environment = str(inspect(alone.container(SERVICE))["Config"]["Env"])
    assert [name for name in LOGINS if name in environment] == []
