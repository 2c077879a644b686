"""The missing one of `.env` and `.env.services` is made with the logins of the other."""

import stat
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

import pytest

from provision import __main__ as cli
from provision import dotenv, env_files

SECRET = "s3cret/with ' and \" and $"

NODES = [f"amqp://queue:{quote(SECRET, safe='')}@{node}:5672/jobs" for node in ("rabbitmq", "rabbitmq_2")]

#: An `.env` whose URLs have logins of their own.
ONE_FILE = f"""\
CELERY_BROKER_URL={";".join(NODES)}
REDIS_URL=redis://:cached@redis:6379/0
DATABASE_URL=postgres://owner:stored@postgres:5432/moths
NATS_URL=nats://streams:0123@nats:4222
"""


#: What the version that had one file demanded besides: its workers had PostgreSQL's superuser.
SUPERUSER = "POSTGRES_USER=owner\nPOSTGRES_PASSWORD=stored\nPOSTGRES_DB=moths\n"
OF_SUPERUSER = {"POSTGRES_USER": "owner", "POSTGRES_PASSWORD": "stored"}
OF_DATABASE = {"DATABASE_USER": "owner", "DATABASE_PASSWORD": "stored"}


def from_env(folder: Path, text: str) -> dict[str, str]:
    (folder / ".env").write_text(text)
    assert cli.main(["dotenv", str(folder / ".env")]) == 0
    assert (folder / ".env").read_text() == text
    made = folder / ".env.services"
    assert stat.S_IMODE(made.stat().st_mode) == 0o600
    return dotenv.variables(made.read_text())


def test_services_get_the_logins_of_the_urls(tmp_path: Path):
    found = from_env(tmp_path, ONE_FILE)
    assert len(found.pop("POSTGRES_PASSWORD")) == 2 * dotenv.PASSWORD_BYTES, "no URL has it"
    assert found == {
        "RABBITMQ_USER": "queue",
        "RABBITMQ_PASSWORD": SECRET,
        "RABBITMQ_VHOST": "jobs",
        "REDIS_PASSWORD": "cached",
        "POSTGRES_USER": "postgres",
        "POSTGRES_DB": "moths",
        "DATABASE_USER": "owner",
        "DATABASE_PASSWORD": "stored",
        "NATS_USER": "streams",
        "NATS_PASSWORD": "0123",
    }


def test_variables_of_an_older_env_move_and_are_named(tmp_path: Path, capsys):
    moved = (
        "POSTGRES_USER=root\nREDIS_PASSWORD=\nREDIS_PASSWORD_FILE=/run/secrets/r\nRABBITMQ_ERLANG_COOKIE='a cookie'\n"
    )
    found = from_env(tmp_path, ONE_FILE + moved)
    assert (found["POSTGRES_USER"], found["POSTGRES_DB"]) == ("root", "moths")
    assert (found["REDIS_PASSWORD"], found["REDIS_PASSWORD_FILE"]) == ("", "/run/secrets/r")
    assert found["ERLANG_COOKIE"] == "a cookie"
    said = capsys.readouterr().err
    assert said.endswith(
        "; remove from .env: POSTGRES_USER, REDIS_PASSWORD, REDIS_PASSWORD_FILE, RABBITMQ_ERLANG_COOKIE\n"
    )


@pytest.mark.parametrize("left_out", ["", "POSTGRES_PASSWORD=stored\n", "POSTGRES_DB=moths\n"])
def test_superuser_of_an_older_env_stays_the_user_of_the_url(tmp_path: Path, capsys, left_out: str):
    found = from_env(tmp_path, ONE_FILE + SUPERUSER.replace(left_out, ""))
    assert found.items() >= (OF_SUPERUSER | OF_DATABASE | {"POSTGRES_DB": "moths"}).items()
    assert capsys.readouterr().err.endswith(
        "; the user in DATABASE_URL is PostgreSQL's superuser: docs/operations.md says how to change that\n"
    )


def test_superuser_of_an_older_env_stays_where_the_url_is_in_a_file(tmp_path: Path):
    older = ONE_FILE.replace("DATABASE_URL=", "#") + "DATABASE_URL_FILE=/run/secrets/database_url\n" + SUPERUSER
    found = from_env(tmp_path, older.replace("PASSWORD=stored", "PASSWORD=\nPOSTGRES_PASSWORD_FILE=/run/secrets/p"))
    for account in ("POSTGRES", "DATABASE"):
        assert found[f"{account}_USER"] == "owner"
        assert (found[f"{account}_PASSWORD"], found[f"{account}_PASSWORD_FILE"]) == ("", "/run/secrets/p")


def test_url_of_the_image_s_superuser_gives_its_password(tmp_path: Path):
    found = from_env(tmp_path, "DATABASE_URL=postgres://postgres:stored@postgres:5432/moths\n")
    assert (found["POSTGRES_USER"], found["POSTGRES_PASSWORD"]) == ("postgres", "stored")


def test_services_with_one_account_of_postgresql_give_it_to_the_url(tmp_path: Path):
    text = dotenv.with_secrets(env_files.SERVICES_EXAMPLE.read_text(), OF_SUPERUSER)
    lines = (line for line in text.splitlines(keepends=True) if not line.startswith("DATABASE_"))
    (tmp_path / ".env.services").write_text("".join(lines))
    assert cli.main(["dotenv", str(tmp_path / ".env")]) == 0
    url = dotenv.variables((tmp_path / ".env").read_text())["DATABASE_URL"]
    assert url == "postgres://owner:stored@postgres:5432/antenna"


def test_service_that_no_url_names_gets_a_new_secret(tmp_path: Path):
    found = from_env(
        tmp_path, "CELERY_BROKER_URL=objectstore+file:///data/broker\nREDIS_URL=redis://:cached@redis:6379/0\n"
    )
    assert found["REDIS_PASSWORD"] == "cached"
    assert found["RABBITMQ_USER"] == "antenna"
    assert len(found["RABBITMQ_PASSWORD"]) == 2 * dotenv.PASSWORD_BYTES


def test_url_in_a_file_needs_the_login_by_name(tmp_path: Path, capsys):
    (tmp_path / ".env").write_text("REDIS_URL_FILE=/run/secrets/redis_url\n")
    assert cli.main(["dotenv", str(tmp_path / ".env")]) == 1
    assert "REDIS_URL_FILE names a file; first set REDIS_PASSWORD, or its _FILE, in .env." in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == [".env"]


def test_urls_get_the_logins_of_the_services(tmp_path: Path):
    env, services = tmp_path / ".env", tmp_path / ".env.services"
    values = {name: f"{name} {SECRET}" for name in dotenv.variables(env_files.SERVICES_EXAMPLE.read_text())}
    text = dotenv.with_secrets(env_files.SERVICES_EXAMPLE.read_text(), values)
    services.write_text(text)
    assert cli.main(["dotenv", str(env)]) == 0
    assert services.read_text() == text
    found = dotenv.variables(env.read_text())
    for login in env_files.LOGINS:
        parts = urlsplit(found[login.url])
        assert unquote(parts.username or "") == values.get(login.user, "")
        assert unquote(parts.password or "") == values[login.password]
        assert not login.path or unquote(parts.path) == f"/{values[login.path]}"
    assert env_files.logins(found).items() <= values.items()


def test_login_in_a_file_cannot_become_a_url(tmp_path: Path, capsys):
    text = env_files.SERVICES_EXAMPLE.read_text()
    changes = {"REDIS_PASSWORD": "", "REDIS_PASSWORD_FILE": "/run/secrets/r"}
    (tmp_path / ".env.services").write_text(dotenv.with_secrets(text, changes))
    assert cli.main(["dotenv", str(tmp_path / ".env")]) == 1
    assert "which has no value of REDIS_PASSWORD; write" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == [".env.services"]


@pytest.mark.parametrize("name", [".env", ".env.services"])
def test_link_is_not_followed(tmp_path: Path, name: str):
    target = tmp_path / "elsewhere"
    (tmp_path / name).symlink_to(target)
    assert cli.main(["dotenv", str(tmp_path / ".env")]) == 1
    assert not target.exists()
