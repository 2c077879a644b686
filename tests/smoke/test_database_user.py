"""compose/postgres/database-user in PostgreSQL's image, which sources it or executes it by its mode."""

import shutil
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from config.schema.compose import Compose
from tests.support.containers.engine import client, docker, execute, until
from tests.support.place import ROOT

IMAGE = str(Compose.model_fields["postgres_image"].default)
SCRIPT = ROOT / "compose/postgres/database-user"
SUPERUSER, DATABASE, USER = "postgres", 'an"t', "o'w\"n"
#: It would end, change or cut off a command of the shell, of psql or of SQL.
PASSWORD = "a'b\\'c \"d `e` $(f) # %g"  # noqa: S105

Start = Callable[..., str]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts PostgreSQL with an empty volume and returns the container's name; ``mode`` is the script's."""
    names: list[str] = []
    tmp_path.chmod(0o755)

    def started(mode: int = 0o644, **environment: str) -> str:
        names.append(f"antenna-smoke-user-{uuid.uuid4().hex[:8]}")
        (tmp_path / "password").write_text(PASSWORD + "\n")
        shutil.copy(SCRIPT, script := tmp_path / "database-user.sh")
        script.chmod(mode)
        given = {"POSTGRES_USER": SUPERUSER, "POSTGRES_PASSWORD": "o'f\"s", "POSTGRES_DB": DATABASE, **environment}
        variables = [part for name, value in given.items() for part in ("--env", f"{name}={value}")]
        mounts = [f"{script}:/docker-entrypoint-initdb.d/{script.name}:ro", f"{tmp_path}/password:/password:ro"]
        volumes = [part for mount in mounts for part in ("--volume", mount)]
        docker("run", "--detach", "--name", names[-1], *variables, *volumes, IMAGE)
        return names[-1]

    yield started
    for name in names:
        docker("rm", "--force", "--volumes", name, check=False)


def ask(container: str, query: str, user: str = SUPERUSER, **environment: str) -> str:
    """Return what a query prints once the server listens to others, which it does when it is initialised."""
    ready = ("sh", "-c", "pg_isready --quiet --host 127.0.0.1 && echo ready; true")
    until(lambda: execute(container, *ready) == "ready\n", 60, "PostgreSQL is initialised", 0.2)
    psql = ["psql", "--username", user, "--dbname", DATABASE, "--no-align", "--tuples-only", "--command", query]
    # Within the container a socket asks for no password, and a network address of its own does.
    host = execute(container, "hostname", "-i").split()[0] if user == USER else "/var/run/postgresql"
    return execute(container, *psql, "--host", host, **environment).strip()


@pytest.mark.parametrize("given", [{"DATABASE_PASSWORD": PASSWORD}, {"DATABASE_PASSWORD_FILE": "/password"}], ids=list)
@pytest.mark.parametrize("mode", [0o644, 0o755], ids=["sourced", "executed"])
def test_any_password_serves_the_owner_of_the_database(start: Start, mode: int, given: dict[str, str]):
    container = start(mode, DATABASE_USER=USER, **given)
    query = "SELECT rolsuper FROM pg_roles WHERE rolname = current_user"
    assert ask(container, query, USER, PGPASSWORD=PASSWORD) == "f"
    query = "SELECT pg_get_userbyid(datdba) FROM pg_database WHERE datname = current_database()"
    assert ask(container, query) == USER
    assert PASSWORD not in client().containers.get(container).logs().decode()


@pytest.mark.parametrize("given", [{}, {"DATABASE_USER": SUPERUSER}], ids=["unset", "the superuser"])
def test_without_a_second_user_there_is_the_superuser_alone(start: Start, given: dict[str, str]):
    assert ask(start(**given), "SELECT rolname FROM pg_roles WHERE rolcanlogin") == SUPERUSER


@pytest.mark.parametrize(
    ("given", "fact"),
    [
        ({}, "DATABASE_PASSWORD is not set; "),
        ({"DATABASE_PASSWORD": "change-me"}, "DATABASE_PASSWORD is still the placeholder; "),
        ({"DATABASE_PASSWORD_FILE": "/nowhere"}, "_FILE is empty or not readable for user id "),
        ({"DATABASE_PASSWORD_FILE": "/etc/shadow"}, "_FILE is empty or not readable for user id "),
    ],
)
def test_user_without_a_password_stops_the_first_start(start: Start, given: dict[str, str], fact: str):
    container = start(DATABASE_USER=USER, **given)
    assert docker("wait", container).strip() == "2"
    assert fact in client().containers.get(container).logs().decode()


def test_refused_statement_is_not_logged_with_its_password(start: Start):
    container = start(DATABASE_USER="pg_reserved", DATABASE_PASSWORD="hunter-2")
    assert docker("wait", container).strip() != "0"
    log = client().containers.get(container).logs().decode()
    assert 'role name "pg_reserved" is reserved' in log
    assert "hunter-2" not in log
