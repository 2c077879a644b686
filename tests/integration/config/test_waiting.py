"""A wait on the real services: a wrong password and missing migrations are named; when all is well, it ends."""

import os
import subprocess
import uuid
from collections.abc import Iterator
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest
from redis import Redis

from tests.support import forked_python
from tests.support.place import Process, management, until

WRONG = "wrong-secret"


def waiting(*argv: str, **changes: str) -> list:
    line = ["-W", "error", "-m", "config.waiting", *argv]
    settings = {"DJANGO_SETTINGS_MODULE": "config.settings.local", "ANTENNA_WAIT_SECONDS": "3"}
    return [line, {**os.environ, **settings, **changes}]


def run(*argv: str, **changes: str) -> subprocess.CompletedProcess[str]:
    line, environ = waiting(*argv, **changes)
    return forked_python.run(line, env=environ)


def with_login(url: str, user: str, password: str) -> str:
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=f"{user}:{password}@{parts.netloc.rpartition('@')[2]}"))


def gives_up(why: str, **changes: str) -> None:
    """Wait in vain, for the one variable that is wrong and nothing else."""
    done = run("--services-only", "echo", "the command runs", **changes)
    (name,) = changes
    assert (done.returncode, done.stdout) == (1, "")
    address = urlsplit(changes[name]).netloc.rpartition("@")[2]
    assert done.stderr.splitlines()[0].endswith(f" at {address} ({name}): {why}"), done.stderr
    assert done.stderr.count("Waiting for") == 1, done.stderr
    assert WRONG not in done.stderr


def test_a_wrong_password_of_rabbitmq_is_named():
    user = urlsplit(os.environ["CELERY_BROKER_URL"]).username or ""
    gives_up("the login is refused", CELERY_BROKER_URL=with_login(os.environ["CELERY_BROKER_URL"], user, WRONG))


def test_a_missing_virtual_host_of_rabbitmq_is_named():
    parts = urlsplit(os.environ["CELERY_BROKER_URL"])
    why = "there is no such virtual host for this login"
    gives_up(why, CELERY_BROKER_URL=urlunsplit(parts._replace(path="/nowhere")))


def test_a_wrong_password_of_redis_is_named():
    user = f"waiting-{uuid.uuid4().hex[:6]}"
    with Redis.from_url(os.environ["REDIS_URL"]) as client:
        client.acl_setuser(user, enabled=True, passwords=["+right"], commands=["+@all"])
        try:
            gives_up("the login is refused", REDIS_URL=with_login(os.environ["REDIS_URL"], user, WRONG))
        finally:
            client.acl_deluser(user)


def at_database(name: str) -> str:
    return urlunsplit(urlsplit(os.environ["DATABASE_URL"])._replace(path=f"/{name}"))


@pytest.fixture(scope="module")
def administrator() -> Iterator[psycopg.Connection]:
    """Connected to the database that every server has: the one in DATABASE_URL is not made by what starts it."""
    with psycopg.connect(at_database("postgres"), autocommit=True) as connection:
        yield connection


@pytest.fixture(autouse=True, scope="module")
def own_database(administrator: psycopg.Connection) -> Iterator[str]:
    """The URL of a new database, which DATABASE_URL names meanwhile; one test applies migrations there."""
    name = f"waiting_{uuid.uuid4().hex[:6]}"
    administrator.execute(f"CREATE DATABASE {name}")
    try:
        with pytest.MonkeyPatch.context() as patched:
            patched.setenv("DATABASE_URL", url := at_database(name))
            yield url
    finally:
        administrator.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def role(administrator: psycopg.Connection) -> Iterator[str]:
    """A user of PostgreSQL whom the server asks for a password, also where it trusts everybody else."""
    name = f"waiting_{uuid.uuid4().hex[:6]}"
    before, path = administrator.execute(
        "SELECT pg_read_file(path), path FROM current_setting('hba_file') path"
    ).fetchone()

    def rules(text: str) -> None:
        (made,) = administrator.execute("SELECT lo_from_bytea(0, %s)", [text.encode()]).fetchone()
        administrator.execute("SELECT lo_export(%s, %s), lo_unlink(%s), pg_reload_conf()", [made, path, made])

    administrator.execute(f"CREATE ROLE {name} LOGIN PASSWORD 'right'")
    rules(f"host all {name} all scram-sha-256\n{before}")
    try:
        yield name
    finally:
        rules(before)
        administrator.execute(f"DROP ROLE {name}")


def test_a_wrong_password_of_postgresql_is_named(role: str):
    url = os.environ["DATABASE_URL"]

    def asks() -> bool:
        try:
            psycopg.connect(with_login(url, role, WRONG)).close()
        except psycopg.OperationalError:
            return True
        return False

    until(asks, 60, "PostgreSQL has read its new rules")
    gives_up("the login is refused", DATABASE_URL=with_login(url, role, WRONG))


def test_a_missing_database_is_named():
    parts = urlsplit(os.environ["DATABASE_URL"])
    gives_up("there is no such database or role", DATABASE_URL=urlunsplit(parts._replace(path="/nowhere")))


def test_missing_migrations_are_named_and_when_all_is_well_the_command_runs(own_database: str):
    done = run("echo", "the command runs", DATABASE_URL=own_database)
    assert (done.returncode, done.stdout) == (1, "")
    address = urlsplit(own_database).netloc.rpartition("@")[2]
    assert done.stderr.startswith(f"Waiting for the migrations of the database at {address} (DATABASE_URL): ")
    assert " are not applied, such as admin.0001_initial; 'python manage.py migrate' applies them\n" in done.stderr

    here = {**os.environ, "DJANGO_SETTINGS_MODULE": "config.settings.local", "DATABASE_URL": own_database}
    migrated = forked_python.run(["manage.py", "migrate", "--verbosity=0"], env=here)
    assert migrated.returncode == 0, migrated.stderr
    done = run("echo", "the command runs", DATABASE_URL=own_database)
    assert (done.returncode, done.stdout, done.stderr) == (0, "the command runs\n", "")


def test_a_service_that_comes_later_is_told_and_the_command_runs(tmp_path):
    parts = urlsplit(os.environ["CELERY_BROKER_URL"])
    vhost = f"waiting-{uuid.uuid4().hex[:6]}"
    url = urlunsplit(parts._replace(path=f"/{vhost}"))
    log = tmp_path / "log"
    line, environ = waiting(
        "--services-only", "echo", "the command runs", CELERY_BROKER_URL=url, ANTENNA_WAIT_SECONDS="60"
    )
    with log.open("wb") as output:
        popen = forked_python.start(line, env=environ, stdout=output, stderr=output)
    process = Process(line, popen, log)
    try:
        until(lambda: "Waiting for RabbitMQ" in process.text, 60, "it waits")
        management("PUT", f"vhosts/{vhost}", {})
        management("PUT", f"permissions/{vhost}/{parts.username}", {"configure": ".*", "write": ".*", "read": ".*"})
        assert popen.wait(60) == 0
        assert process.text.splitlines()[-2].startswith("RabbitMQ answers after ")
        assert process.text.endswith("\nthe command runs\n")
    finally:
        process.kill()
        management("DELETE", f"vhosts/{vhost}")
