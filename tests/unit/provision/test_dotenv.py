"""`.env` and `.env.services` made from the examples start production, with one password per service."""

import re
import socket
import stat
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from provision import __main__ as cli
from provision import dotenv, env_files
from tests.support import forked_python
from tests.support.place import ROOT

EXAMPLE = ROOT / ".env.example"


def made() -> dict[str, str]:
    """Both files' variables."""
    shared: dict[str, str] = {}
    examples = (EXAMPLE, env_files.SERVICES_EXAMPLE)
    texts = [dotenv.with_secrets(example.read_text(), made=shared) for example in examples]
    return {name: value for text in texts for name, value in dotenv.variables(text).items()}


def test_no_placeholder_is_left_and_everything_else_is():
    text = dotenv.with_secrets(EXAMPLE.read_text())
    assert dotenv.PLACEHOLDER not in re.sub(r"^# .*$", "", text, flags=re.M)
    assert len(text.splitlines()) == len(EXAMPLE.read_text().splitlines())


def test_each_service_has_one_password_and_shares_it_with_none():
    found = made()
    assert urlsplit(found["CELERY_BROKER_URL"]).password == found["RABBITMQ_PASSWORD"]
    assert urlsplit(found["RABBITMQ_MANAGEMENT_URL"]).password == found["RABBITMQ_PASSWORD"]
    assert urlsplit(found["REDIS_URL"]).password == found["REDIS_PASSWORD"]
    assert urlsplit(found["DATABASE_URL"]).password == found["DATABASE_PASSWORD"]
    assert urlsplit(found["NATS_URL"]).password == found["NATS_PASSWORD"]
    passwords = [found[f"{name}_PASSWORD"] for name in ("RABBITMQ", "REDIS", "POSTGRES", "DATABASE", "NATS")]
    assert len({*passwords, found["FLOWER_BASIC_AUTH"].partition(":")[2], found["DJANGO_SECRET_KEY"]}) == 7
    assert found != made(), "new secrets each time"


@pytest.mark.processes
def test_production_starts_with_it():
    show = "from django.conf import settings; print(settings.DEBUG)"
    done = forked_python.run(["-c", show], env={**made(), "DJANGO_SETTINGS_MODULE": "config.settings.production"})
    assert (done.returncode, done.stdout) == (0, "False\n"), done.stderr


def test_command_writes_both_files_mode_0600_and_never_overwrites(tmp_path: Path, capsys):
    both = [tmp_path / ".env", tmp_path / ".env.services"]
    assert cli.main(["dotenv", str(both[0])]) == 0
    assert sorted(tmp_path.iterdir()) == both
    assert {stat.S_IMODE(path.stat().st_mode) for path in both} == {0o600}
    before = [path.read_text() for path in both]
    assert not set(dotenv.variables(before[0])) & set(dotenv.variables(before[1])), "a worker reads the first one"
    assert cli.main(["dotenv", str(both[0])]) == 1
    assert [path.read_text() for path in both] == before
    error = capsys.readouterr().err
    assert "exist and were not changed" in error
    assert dotenv.variables(before[1])["REDIS_PASSWORD"] not in error


def test_local_file_serves_a_browser_on_the_same_machine(tmp_path: Path):
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


VALUES = ("plain", "a#b", "a #b", "$HOME", "it's", "it's $5", "back\\slash", 'it\'s "both"', "  spaces ", "a=b", "")


@pytest.mark.parametrize("value", VALUES)
def test_changed_value_is_read_as_it_was_given(value: str):
    assert dotenv.variables(dotenv.with_secrets("#NAME=example\n", {"NAME": value})) == {"NAME": value}


def test_value_is_read_without_its_comment():
    assert dotenv.variables("A=b # c\nC='d' # e\n#E=f\n") == {"A": "b", "C": "d"}
