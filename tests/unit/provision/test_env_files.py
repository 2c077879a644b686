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


def test_service_that_no_url_names_gets_a_new_secret(tmp_path: Path):
    found = from_env(
        tmp_path, "CELERY_BROKER_URL=objectstore+file:///data/broker\nREDIS_URL=redis://:cached@redis:6379/0\n"
    )
    assert found["REDIS_PASSWORD"] == "cached"
    assert found["RABBITMQ_USER"] == "antenna"
    assert len(found["RABBITMQ_PASSWORD"]) == 2 * dotenv.PASSWORD_BYTES


def test_login_of_a_url_in_a_file_is_not_read(tmp_path: Path, capsys):
    (tmp_path / ".env").write_text("REDIS_URL_FILE=/run/secrets/redis_url\n")
    assert cli.main(["dotenv", str(tmp_path / ".env")]) == 1
    assert (
        "REDIS_URL_FILE names a file; write .env.services by hand, from .env.services.example."
        in capsys.readouterr().err
    )
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
