"""A secret may be a file that ``<NAME>_FILE`` names; a file with no secret stops the process, its content not shown."""

import os
import socket
from pathlib import Path

import httpx
import pytest

from ami.environment.errors import EnvironmentRefused
from ami.environment.secret_files import read_files
from config.schema.environment import secrets
from tests.support import forked_python
from tests.support.place import FOLDER, Process, new_place, until

from .conftest import GOOD, Run
from .conftest import SECRETS as PASSWORDS

pytestmark = pytest.mark.processes

SECRETS = tuple(each.name for each in secrets())
REQUIRED = tuple(name for name in SECRETS if name in GOOD)
SHOW = "import os, config; print(os.environ[{0!r}], repr(os.environ[{0!r} + '_FILE']))"


def write(folder: Path, values: dict[str, str]) -> dict[str, str]:
    """Put each value into a file; return the variables that say so, their own names empty."""
    for name, value in values.items():
        (folder / name).write_text(value)
    return {**dict.fromkeys(values, ""), **{f"{name}_FILE": str(folder / name) for name in values}}


def test_production_starts_with_every_required_secret_in_a_file(run: Run, tmp_path: Path):
    assert len(REQUIRED) == 5, "the sixth is DJANGO_ALLOWED_HOSTS, which is no secret"
    changes = write(tmp_path, {name: f"{GOOD[name]}\n" for name in REQUIRED})
    done = run("manage.py", "check", "--deploy", "--fail-level", "WARNING", **changes)
    assert done.returncode == 0, done.stderr
    assert "no issues (0 silenced)" in done.stdout


def values_of(name: str) -> str:
    """Return a value of another alphabet, where the variable may have any."""
    address = {"URL": "http://a:b@c", "DSN": "https://key@sentry.invalid/1"}.get(name.rpartition("_")[2])
    address = "smtp://a:b@c" if name == "EMAIL_URL" else address
    return GOOD.get(name, address or "a value of äöü")


@pytest.mark.parametrize("name", SECRETS)
def test_every_secret_is_in_the_environment_as_soon_as_the_application_is_there(run: Run, tmp_path: Path, name: str):
    done = run("-c", SHOW.format(name), **write(tmp_path, {name: values_of(name) + " \r\n"}))
    assert done.stdout == f"{values_of(name)} ''\n", done.stderr


def test_a_process_that_this_one_starts_takes_it_from_there(run: Run, tmp_path: Path):
    again = (
        "import subprocess, sys, config; sys.exit(subprocess.run([sys.executable, '-c', 'import config']).returncode)"
    )
    done = run("-c", again, **write(tmp_path, {"REDIS_URL": GOOD["REDIS_URL"]}))
    assert done.returncode == 0, done.stderr


def test_file_is_read_once(tmp_path: Path):
    environ = {"REDIS_URL_FILE": str(tmp_path / "url")}
    (tmp_path / "url").write_text("redis://:secret@redis/0")
    for _ in range(2):
        read_files(["REDIS_URL"], environ)
        assert environ == {"REDIS_URL": "redis://:secret@redis/0", "REDIS_URL_FILE": ""}


def test_every_unusable_file_is_named_at_once(run: Run, tmp_path: Path):
    done = run("manage.py", "check", **dict.fromkeys(("REDIS_URL_FILE", "NATS_URL_FILE"), str(tmp_path / "missing")))
    assert done.returncode == 1
    assert [line.split()[2] for line in done.stderr.splitlines()] == ["REDIS_URL", "NATS_URL"], "both are set, too"


def test_values_of_the_environment_are_no_setting_and_show_no_secret(run: Run):
    show = "from django.conf import settings; from config.settings.environment import values; "
    show += "print(hasattr(settings, 'VALUES'), values, [values])"
    done = run("-c", show)
    assert done.stdout.startswith("False django_debug="), done.stderr + done.stdout[:80]
    assert [secret for secret in PASSWORDS.values() if secret in done.stdout] == []


WRONG = {
    "empty": (b"", "holds no text"),
    "an empty line": (b"\n", "holds no text"),
    "spaces": (b"  \n", "holds no text"),
    "binary": (b"wrong-secret\0", "holds no text"),
    "too large": (b"wrong-secret" * 6000, "is larger than 64 KiB"),
    "not UTF-8": (b"wrong-secret\xff", "is not UTF-8"),
    "two lines": (b"redis://:wrong-secret@redis\nmore", "holds more than one line"),
    "the placeholder": (b"redis://:change-me@redis:6379/0", "still holds the placeholder 'change-me'"),
}


def refused(run: Run, **changes: str) -> str:
    done = run("manage.py", "check", **changes)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("Configuration refused: REDIS_URL")
    assert done.stderr.count("\n") == 1
    assert [secret for secret in (*PASSWORDS.values(), "wrong-secret") if secret in done.stderr] == []
    return done.stderr


@pytest.mark.parametrize(("content", "fact"), WRONG.values(), ids=WRONG)
def test_a_file_that_holds_no_secret_stops_the_process(run: Run, tmp_path: Path, content: bytes, fact: str):
    file = tmp_path / "redis_url"
    file.write_bytes(content)
    sentence = refused(run, REDIS_URL="", REDIS_URL_FILE=str(file))
    assert f"REDIS_URL_FILE is '{file}', which {fact}" in sentence


def test_the_largest_file_is_taken(tmp_path: Path):
    (tmp_path / "key").write_text("x" * 64 * 1024)
    environ = {"AWS_ACCESS_KEY_ID_FILE": str(tmp_path / "key")}
    read_files(["AWS_ACCESS_KEY_ID"], environ)
    assert len(environ["AWS_ACCESS_KEY_ID"]) == 64 * 1024


@pytest.mark.parametrize("path", ["missing", "."], ids=["missing", "a folder"])
def test_a_path_without_a_file_is_named(run: Run, tmp_path: Path, path: str):
    where = str(tmp_path / path)
    assert f"REDIS_URL_FILE is '{where}', which is not a file" in refused(run, REDIS_URL="", REDIS_URL_FILE=where)


def test_a_file_that_may_not_be_read_is_named(tmp_path: Path, monkeypatch):
    """The superuser, as whom tests may run, reads every file."""
    file = tmp_path / "redis_url"
    file.write_text("wrong-secret")
    monkeypatch.setattr(Path, "open", lambda *_: (_ for _ in ()).throw(PermissionError(13, "Permission denied")))
    sentence = rf"REDIS_URL_FILE is '{file}', which cannot be read \(Permission denied\)"
    with pytest.raises(EnvironmentRefused, match=sentence):
        read_files(["REDIS_URL"], {"REDIS_URL_FILE": str(file)})


@pytest.mark.parametrize("value", ["redis://:wrong-secret@redis/0", "wrong-secret", "run/secrets/wrong-secret"])
def test_relative_path_may_be_the_secret_and_is_not_shown(run: Run, value: str):
    assert "REDIS_URL_FILE is not an absolute path" in refused(run, REDIS_URL="", REDIS_URL_FILE=value)


def test_a_secret_given_twice_is_refused(run: Run, tmp_path: Path):
    file = write(tmp_path, {"REDIS_URL": "redis://:wrong-secret@redis/0"})["REDIS_URL_FILE"]
    assert "REDIS_URL and REDIS_URL_FILE are both set" in refused(run, REDIS_URL_FILE=file)


def test_what_a_file_gives_is_refused_like_the_variable(run: Run, tmp_path: Path):
    sentence = refused(run, **write(tmp_path, {"REDIS_URL": "redis://redis/0"}))
    assert sentence.startswith("Configuration refused: REDIS_URL carries no password")


def test_an_empty_file_variable_counts_as_not_set(run: Run):
    assert run("-c", "import config", **{f"{name}_FILE": "" for name in SECRETS}).returncode == 0


def test_flower_takes_its_login_from_a_file(tmp_path: Path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    argv = ["-m", "celery", "-A", "config", "flower", "--address=127.0.0.1", f"--port={url[17:]}"]
    with new_place("flower-secret", FOLDER) as place, httpx.Client(base_url=url, timeout=30) as client:
        env = {**place.environment, **write(tmp_path, {"FLOWER_BASIC_AUTH": "operator:sesame\n"})}
        log = tmp_path / "flower.log"
        with log.open("wb") as output:
            process = Process(argv, forked_python.start(argv, env=env, stdout=output, stderr=output), log)
        place.processes.append(process)

        def answer(auth: tuple[str, str] | None) -> int:
            try:
                return client.get("/workers", auth=auth).status_code
            except httpx.HTTPError:
                assert process.popen.poll() is None, process.text
                return 0

        assert until(lambda: answer(("operator", "sesame")), 60, "Flower answers") == 200
        assert (answer(None), answer(("operator", ""))) == (401, 401)
        assert "sesame" not in process.text


def test_a_worker_reads_its_files_after_the_topology_became_celery(tmp_path: Path):
    (tmp_path / "missing-broker").write_text("")
    environ = {"PATH": os.environ["PATH"], "CELERY_BROKER_URL_FILE": str(tmp_path / "missing-broker")}
    done = forked_python.run(["-m", "ami.topology", "worker", "antenna-ingest"], env=environ)
    assert "Configuration refused: CELERY_BROKER_URL_FILE is" in done.stderr
