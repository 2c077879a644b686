"""A `.env` made from the example starts production, and every service's password is one wherever it stands."""

import re
import socket
import stat
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from provision import __main__ as doors
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


def test_a_service_has_one_password_wherever_it_stands_and_no_two_services_share_one():
    found = made()
    assert urlsplit(found["CELERY_BROKER_URL"]).password == found["RABBITMQ_PASSWORD"]
    assert urlsplit(found["RABBITMQ_MANAGEMENT_URL"]).password == found["RABBITMQ_PASSWORD"]
    assert urlsplit(found["REDIS_URL"]).password == found["REDIS_PASSWORD"]
    assert urlsplit(found["DATABASE_URL"]).password == found["POSTGRES_PASSWORD"]
    assert urlsplit(found["NATS_URL"]).password == found["NATS_PASSWORD"]
    passwords = [found[f"{name}_PASSWORD"] for name in ("RABBITMQ", "REDIS", "POSTGRES", "NATS")]
    assert len({*passwords, found["FLOWER_BASIC_AUTH"].partition(":")[2], found["DJANGO_SECRET_KEY"]}) == 6
    assert found != made(), "made anew each time"


@pytest.mark.processes
def test_production_starts_with_it():
    show = "from django.conf import settings; print(settings.DEBUG)"
    done = forked_python.run(["-c", show], env={**made(), "DJANGO_SETTINGS_MODULE": "config.settings.production"})
    assert (done.returncode, done.stdout) == (0, "False\n"), done.stderr


def test_the_command_writes_it_for_its_owner_alone_and_never_over_another(tmp_path: Path, monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    target = tmp_path / ".env"
    assert doors.main(["dotenv", str(target)]) == 0
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    before = target.read_text()
    assert doors.main(["dotenv", str(target)]) == 1
    assert target.read_text() == before
    said = capsys.readouterr().err
    assert "exists and is left as it is" in said
    assert dotenv.variables(before)["REDIS_PASSWORD"] not in said


def test_a_local_one_answers_the_browser_of_its_machine(tmp_path: Path, monkeypatch):
    monkeypatch.chdir(ROOT)
    assert doors.main(["dotenv", "--local", str(tmp_path / "env")]) == 0
    found = dotenv.variables((tmp_path / "env").read_text())
    assert {name: found[name] for name in dotenv.LOCAL} == dotenv.LOCAL
    assert urlsplit(found["ANTENNA_SERVICES_URL"]).hostname in found["DJANGO_ALLOWED_HOSTS"].split(",")
    others = set(found) - {*made(), *dotenv.LOCAL, "ANTENNA_PUBLIC_URL"}
    assert all(name.startswith("PUBLISHED_") for name in others)
    # What exports hold opens in that browser, also where another port is published than the usual one.
    assert found["ANTENNA_PUBLIC_URL"] == f"http://localhost:{found.get('PUBLISHED_WEB_PORT', '8000')}"


def test_a_local_one_links_to_the_port_that_was_free(monkeypatch):
    monkeypatch.setattr(dotenv, "taken_ports", lambda example: {"PUBLISHED_WEB_PORT": "8123"})
    assert dotenv.local_changes(EXAMPLE.read_text())["ANTENNA_PUBLIC_URL"] == "http://localhost:8123"


def test_every_port_may_be_left_to_the_engine_and_nothing_of_this_shell_goes_before_a_dotenv():
    found = dotenv.published_anywhere(EXAMPLE.read_text())
    assert {"PUBLISHED_WEB_PORT", "PUBLISHED_PROMETHEUS_PORT"} <= set(found)
    assert set(found.values()) == {"0"}
    shell = {"PATH": "/bin", "DOCKER_HOST": "unix:///x", "REDIS_URL": "redis://here", "DJANGO_SETTINGS_MODULE": "x"}
    assert set(dotenv.engine_environment(shell)) == {"PATH", "DOCKER_HOST"}


def test_a_local_one_publishes_on_no_port_that_somebody_has():
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_server(("127.0.0.1", 0)) as gone:
        taken, free = listener.getsockname()[1], gone.getsockname()[1]
        gone.close()
        example = f"#PUBLISHED_WEB_PORT={taken}\n#PUBLISHED_NATS_PORT={free}\n"
        found = dotenv.taken_ports(example)
    assert list(found) == ["PUBLISHED_WEB_PORT"]
    assert int(found["PUBLISHED_WEB_PORT"]) != taken


@pytest.mark.parametrize("line", ["# A comment with change-me", "", "NAME=value"])
def test_what_holds_no_placeholder_is_left_as_it_is(line: str):
    assert dotenv.with_secrets(line + "\n") == line + "\n"
