"""A `.env` made from the example starts production, with one password per service."""

import re
import socket
import stat
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from provision import __main__ as cli
from provision import dotenv
from tests.support import forked_python
from tests.support.place import ROOT

EXAMPLE = ROOT / ".env.example"


def made() -> dict[str, str]:
    return dotenv.variables(dotenv.with_secrets(EXAMPLE.read_text()))


def test_no_placeholder_is_left_and_everything_else_is():
    text = dotenv.with_secrets(EXAMPLE.read_text())
    assert dotenv.PLACEHOLDER not in re.sub(r"^# .*$", "", text, flags=re.M)
    assert len(text.splitlines()) == len(EXAMPLE.read_text().splitlines())


def test_each_service_has_one_password_and_shares_it_with_none():
    found = made()
    assert urlsplit(found["CELERY_BROKER_URL"]).password == found["RABBITMQ_PASSWORD"]
    assert urlsplit(found["RABBITMQ_MANAGEMENT_URL"]).password == found["RABBITMQ_PASSWORD"]
    assert urlsplit(found["REDIS_URL"]).password == found["REDIS_PASSWORD"]
    assert urlsplit(found["DATABASE_URL"]).password == found["POSTGRES_PASSWORD"]
    assert urlsplit(found["NATS_URL"]).password == found["NATS_PASSWORD"]
    passwords = [found[f"{name}_PASSWORD"] for name in ("RABBITMQ", "REDIS", "POSTGRES", "NATS")]
    assert len({*passwords, found["FLOWER_BASIC_AUTH"].partition(":")[2], found["DJANGO_SECRET_KEY"]}) == 6
    assert found != made(), "new secrets each time"


@pytest.mark.processes
def test_production_starts_with_it():
    show = "from django.conf import settings; print(settings.DEBUG)"
    done = forked_python.run(["-c", show], env={**made(), "DJANGO_SETTINGS_MODULE": "config.settings.production"})
    assert (done.returncode, done.stdout) == (0, "False\n"), done.stderr


def test_command_writes_mode_0600_and_never_overwrites(tmp_path: Path, monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    target = tmp_path / ".env"
    assert cli.main(["dotenv", str(target)]) == 0
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    before = target.read_text()
    assert cli.main(["dotenv", str(target)]) == 1
    assert target.read_text() == before
    error = capsys.readouterr().err
    assert "exists and was not changed" in error
    assert dotenv.variables(before)["REDIS_PASSWORD"] not in error


def test_local_file_serves_a_browser_on_the_same_machine(tmp_path: Path, monkeypatch):
    monkeypatch.chdir(ROOT)
    assert cli.main(["dotenv", "--local", str(tmp_path / "env")]) == 0
    found = dotenv.variables((tmp_path / "env").read_text())
    assert {name: found[name] for name in dotenv.LOCAL} == dotenv.LOCAL
    assert urlsplit(found["ANTENNA_SERVICES_URL"]).hostname in found["DJANGO_ALLOWED_HOSTS"].split(",")
    others = set(found) - {*made(), *dotenv.LOCAL, "ANTENNA_PUBLIC_URL"}
    assert all(name.startswith("PUBLISHED_") for name in others)
    # Links in exports open in that browser, also with another published port.
    assert found["ANTENNA_PUBLIC_URL"] == f"http://localhost:{found.get('PUBLISHED_WEB_PORT', '8000')}"


def test_local_file_links_to_the_free_port(monkeypatch):
    monkeypatch.setattr(dotenv, "taken_ports", lambda example: {"PUBLISHED_WEB_PORT": "8123"})
    assert dotenv.local_changes(EXAMPLE.read_text())["ANTENNA_PUBLIC_URL"] == "http://localhost:8123"


def test_engine_may_choose_ports_and_gets_no_variable_of_the_shell():
    found = dotenv.published_anywhere(EXAMPLE.read_text())
    assert {"PUBLISHED_WEB_PORT", "PUBLISHED_PROMETHEUS_PORT"} <= set(found)
    assert set(found.values()) == {"0"}
    shell = {"PATH": "/bin", "DOCKER_HOST": "unix:///x", "REDIS_URL": "redis://here", "DJANGO_SETTINGS_MODULE": "x"}
    assert set(dotenv.engine_environment(shell)) == {"PATH", "DOCKER_HOST"}


def test_local_file_avoids_ports_in_use():
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_server(("127.0.0.1", 0)) as closed:
        taken, free = listener.getsockname()[1], closed.getsockname()[1]
        closed.close()
        example = f"#PUBLISHED_WEB_PORT={taken}\n#PUBLISHED_NATS_PORT={free}\n"
        found = dotenv.taken_ports(example)
    assert list(found) == ["PUBLISHED_WEB_PORT"]
    assert int(found["PUBLISHED_WEB_PORT"]) != taken


@pytest.mark.parametrize("line", ["# A comment with change-me", "", "NAME=value"])
def test_line_without_placeholder_is_unchanged(line: str):
    assert dotenv.with_secrets(line + "\n") == line + "\n"
