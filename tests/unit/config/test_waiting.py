"""A process waits for what it needs, says for what, and becomes its command; a wait ends in time and by a signal."""

import contextlib
import json
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ami.queues.connection_reasons import reason
from config import waiting
from config.waiting import Need, migrations, probes
from tests.support import forked_python
from tests.support.place import ROOT, Process, until

from .conftest import SECRETS, Run, copy, environment

processes = pytest.mark.processes

WAITING = ("-m", "config.waiting")
SAY = ("echo", "the command runs")


@pytest.fixture
def start(tmp_path: Path):
    """Start ``python -W error -m config.waiting ARGV`` with production settings and these changes, ``anew`` in a new
    interpreter.
    """
    started: list[Process] = []

    def start(*argv: str, anew: bool = False, **changes: str) -> Process:
        log = tmp_path / f"{len(started)}.log"
        line = ["-W", "error", *WAITING, *argv]
        env = environment(**changes)
        with log.open("wb") as output:
            if anew:
                line = [sys.executable, *line]
                popen = subprocess.Popen(line, cwd=ROOT, env=env, stdout=output, stderr=output, start_new_session=True)
            else:
                popen = forked_python.start(line, env=env, stdout=output, stderr=output)
        started.append(Process(line, popen, log))
        return started[-1]

    yield start
    for process in started:
        process.kill()


def local(folder: Path, **changes: str) -> dict[str, str]:
    """What differs from GOOD where nothing is configured but a database in a folder."""
    nothing = dict.fromkeys(("CELERY_BROKER_URL", "REDIS_URL", "NATS_URL"), "")
    database = f"sqlite:///{folder / 'x.sqlite3'}"
    return {"DJANGO_SETTINGS_MODULE": "config.settings.local", **nothing, "DATABASE_URL": database, **changes}


@contextlib.contextmanager
def listener() -> Iterator[int]:
    """The port of a server that never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


NAMED = {
    "RabbitMQ": "RabbitMQ at rabbitmq.invalid:5672 (CELERY_BROKER_URL): the name is not known",
    "Redis": "Redis at redis.invalid:6379 (REDIS_URL): the name is not known",
    "PostgreSQL": "PostgreSQL at postgres.invalid:5432 (DATABASE_URL): the name is not known",
    "NATS": "NATS at nats.invalid:4222 (NATS_URL): the name is not known",
}


@processes
def test_wrong_addresses_are_named_within_ten_seconds_and_no_password_is(start):
    process = start(*SAY)
    until(lambda: "Waiting for" in process.text, 60, "it waits")
    until(lambda: all(f"Waiting for {line}\n" in process.text for line in NAMED.values()), 10, "all four are named")
    assert [secret for secret in SECRETS.values() if secret in process.text] == []
    assert process.popen.poll() is None


@processes
def test_after_the_limit_one_sentence_names_all_that_do_not_answer(start):
    process = start(*SAY, ANTENNA_WAIT_SECONDS="2")
    assert process.popen.wait(60) == 1
    last = process.text.splitlines()[-1]
    assert last == f"Gave up after 2 s (ANTENNA_WAIT_SECONDS) on {'; on '.join(NAMED.values())}."
    assert "the command runs" not in process.text
    assert "Traceback" not in process.text


@processes
def test_refused_and_silent_addresses_are_distinguished(start):
    with listener() as silent:
        urls = {
            "CELERY_BROKER_URL": f"amqp://antenna:wrong@127.0.0.1:{free_port()}/a;amqp://antenna:wrong@127.0.0.1:{silent}/a",
            "REDIS_URL": f"redis://:wrong@127.0.0.1:{silent}/0",
            "DATABASE_URL": f"postgres://antenna:wrong@127.0.0.1:{free_port()}/antenna",
            "NATS_URL": f"nats://127.0.0.1:{silent}",
        }
        process = start(*SAY, **urls)
        for sign in (
            f" or 127.0.0.1:{silent} (CELERY_BROKER_URL): connection refused, no answer within 3 s",
            "(REDIS_URL): no answer within 3 s",
            "(DATABASE_URL): connection refused",
            "(NATS_URL): no answer yet",
            "(NATS_URL): no answer within 3 s",
        ):
            until(lambda sign=sign: sign in process.text, 60, sign)
        assert "wrong" not in process.text


@processes
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_ends_the_wait_at_once(start, number: int, code: int):
    process = start(*SAY)
    until(lambda: "Waiting for" in process.text, 60, "it waits")
    process.popen.send_signal(number)
    assert process.popen.wait(60) == code, "long before the limit, and whatever a thread waits for"


@processes
def test_the_command_takes_the_process_s_place(start, tmp_path: Path):
    show = "import os, sys; print(os.getpid(), sys.argv[1:])"
    argv = ("--services-only", sys.executable, "-c", show, "--services-only")
    process = start(*argv, anew=True, **local(tmp_path))
    assert process.popen.wait(60) == 0
    assert process.text == f"{process.popen.pid} ['--services-only']\n"


@processes
def test_the_command_ignores_no_signal(start, tmp_path: Path):
    process = start("--services-only", "grep", "SigIgn", "/proc/self/status", anew=True, **local(tmp_path))
    assert process.popen.wait(60) == 0
    ignored = int(process.text.split()[1], 16)
    # What a shell in the background, or nohup, had ignored before stays so.
    assert not any(ignored >> (number - 1) & 1 for number in (signal.SIGINT, signal.SIGTERM))


@processes
def test_a_limit_of_zero_does_not_wait(run: Run):
    done = run(*WAITING, *SAY, ANTENNA_WAIT_SECONDS="0")
    assert (done.returncode, done.stdout, done.stderr) == (0, "the command runs\n", "")


@processes
@pytest.mark.parametrize(("name", "value"), [("CELERY_BROKER_URL", ""), ("ANTENNA_WAIT_SECONDS", "3601")])
def test_wrong_settings_are_refused_before_anything_is_waited_for(run: Run, name: str, value: str):
    done = run(*WAITING, *SAY, **{name: value})
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"Configuration refused: {name} ")
    assert done.stderr.count("\n") == 1


@processes
@pytest.mark.parametrize(("command", "code"), [("no-such-command", 127), (str(ROOT), 126)])
def test_a_command_that_cannot_be_started_is_named(run: Run, command: str, code: int):
    done = run(*WAITING, command, ANTENNA_WAIT_SECONDS="0")
    assert done.returncode == code
    assert done.stderr.startswith(f"config.waiting: '{command}' cannot be started")
    assert done.stderr.count("\n") == 1


COMPARE = """
import json, sqlite3, sys, django; django.setup()
from django.core.management import call_command
from django.db import connection
from django.db.migrations.executor import MigrationExecutor
from config.waiting import migrations
compared = []
for *target, migrated in (["contenttypes", "zero", None], ["auth", "0003", None], sys.argv[1:]):
    if migrated:
        connection.ensure_connection()
        sqlite3.connect(migrated).backup(connection.connection)
    else:
        call_command("migrate", *target, verbosity=0)
    executor = MigrationExecutor(connection)
    plan = executor.migration_plan(executor.loader.graph.leaf_nodes())
    ours = migrations.in_code() - migrations.in_database()
    compared.append([sorted([m.app_label, m.name] for m, _ in plan), sorted(ours)])
print(json.dumps(compared))
"""


@processes
def test_the_missing_migrations_are_those_of_django_s_plan(run: Run, migrated: Path, tmp_path: Path):
    done = run("-c", COMPARE, str(migrated), **local(tmp_path))
    assert done.returncode == 0, done.stderr
    compared = json.loads(done.stdout)
    assert [bool(plan) for plan, _ in compared] == [True, True, False]
    for plan, ours in compared:
        assert plan == ours
    assert run(*WAITING, *SAY, **local(tmp_path)).stderr == ""


@processes
def test_database_of_an_earlier_version_is_refused_with_the_remedy(run: Run, start, migrated: Path, tmp_path: Path):
    database = tmp_path / "x.sqlite3"
    copy(migrated, database)
    with contextlib.closing(sqlite3.connect(database)) as connection, connection:
        connection.execute("DELETE FROM django_migrations WHERE app = 'main' AND name != '0001_initial'")
        connection.execute("INSERT INTO django_migrations VALUES (NULL, 'main', '0002_login_attempts', '2026-01-01')")
    done = run("manage.py", "migrate", **local(tmp_path))
    assert done.returncode == 1
    assert done.stderr.endswith(f"CommandError: {database} cannot be migrated: {migrations.MADE_EARLIER}.\n")
    process = start(*SAY, **local(tmp_path))
    until(lambda: f"(DATABASE_URL): {migrations.MADE_EARLIER}" in process.text, 60, "a process that starts says so")


@processes
def test_missing_migrations_are_named_and_waited_for(start, migrated: Path, tmp_path: Path):
    process = start(*SAY, **local(tmp_path))
    missing = f"{len(migrations.in_code())} are not applied, such as admin.0001_initial"
    line = f"Waiting for the migrations of the database at {tmp_path / 'x.sqlite3'} (DATABASE_URL): {missing}"
    until(lambda: line in process.text, 60, "they are named")
    copy(migrated, tmp_path / "x.sqlite3")
    assert process.popen.wait(60) == 0
    assert "\nThe migrations are applied after " in process.text
    assert process.text.endswith(" s\nthe command runs\n")


def answers(*whys: str):
    """A probe that gives one answer after the other, and the last for ever."""
    left = list(whys)
    return lambda: left.pop(0) if len(left) > 1 else left[0]


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(waiting, "LOOK_SECONDS", 0.05)
    monkeypatch.setattr(waiting, "REPEAT_SECONDS", 0.3)


def waited(*needs: Need, seconds: float = 20) -> list[str]:
    return waiting.wait(needs, time.monotonic(), time.monotonic() + seconds)


def test_what_answers_at_once_is_not_mentioned(quick, capsys):
    assert waited(Need("Redis", "at a:1 (REDIS_URL)", answers(""))) == []
    assert capsys.readouterr() == ("", "")


def test_new_reason_is_printed_at_once_and_the_end_once(quick, capsys):
    slow = answers(*["connection refused"] * 6, *["the login is refused"] * 6, "")
    assert waited(Need("Redis", "at a:1 (REDIS_URL)", slow)) == []
    lines = capsys.readouterr().err.splitlines()
    printed = list(dict.fromkeys(lines))
    assert printed[:2] == [
        "Waiting for Redis at a:1 (REDIS_URL): connection refused",
        "Waiting for Redis at a:1 (REDIS_URL): the login is refused",
    ]
    assert printed[2:] == [lines[-1]]
    assert lines[-1].startswith("Redis answers after ")


def test_what_never_answers_is_returned_with_its_reason(quick):
    need = Need("Redis", "at a:1 (REDIS_URL)", answers("connection refused"))
    assert waited(need, seconds=0.5) == ["Redis at a:1 (REDIS_URL): connection refused"]


def test_a_reason_that_lasts_is_repeated_every_ten_seconds(capsys):
    over = threading.Event()
    whys = iter(["connection refused"])
    asked = waiting.Probe(Need("Redis", "at a:1 (REDIS_URL)", lambda: next(whys, "") or str(over.wait(60))[:0]), 0.0)
    until(lambda: asked.tried, 60, "it was asked")
    said = [second for second in range(31) if not asked.report(second) and capsys.readouterr().err]
    assert said == [0, 10, 20, 30]
    over.set()
    asked.thread.join(60)


def test_what_lasts_until_a_person_acts_is_printed_once(capsys):
    over = threading.Event()
    need = Need("the migrations", "of a", lambda: str(over.wait(60))[:0], once="'migrate' applies them")
    asked = waiting.Probe(need, 0.0)
    printed = []
    for second in range(31):
        asked.why, asked.tried = f"{3 - second // 15} missing; 'migrate' applies them", True
        assert not asked.report(second)
        printed += capsys.readouterr().err.splitlines()
    assert printed == ["Waiting for the migrations of a: 3 missing; 'migrate' applies them"]
    asked.why = "connection refused"
    asked.report(31)
    assert capsys.readouterr().err == "Waiting for the migrations of a: connection refused\n"
    over.set()
    asked.thread.join(60)


@processes
def test_database_that_nobody_migrates_is_named_once_and_at_the_end(start, tmp_path: Path):
    process = start(*SAY, ANTENNA_WAIT_SECONDS="3", **local(tmp_path))
    assert process.popen.wait(60) == 1
    waits, end = process.text.splitlines()
    assert waits.startswith("Waiting for the migrations of the database ")
    assert waits.endswith("; 'python manage.py migrate' applies them")
    assert end == f"Gave up after 3 s (ANTENNA_WAIT_SECONDS) on {waits.removeprefix('Waiting for ')}."


def test_only_urls_that_name_a_server_are_waited_for(monkeypatch):
    urls = {"CELERY_BROKER_URL": "objectstore+file:///tmp/x", "REDIS_URL": "", "DATABASE_URL": "sqlite:////tmp/x"}
    for name, value in {**urls, "NATS_URL": "nats://me:wrong@[::1]"}.items():
        monkeypatch.setenv(name, value)
    assert [f"{need.name} {need.where}" for need in probes.needs()] == ["NATS at [::1]:4222 (NATS_URL)"]


NATS = {
    "logged in": ([b"INFO {}\r\n", b"PONG\r\n"], ""),
    "refused": ([b"INFO {}\r\n", b"-ERR 'Authorization Violation'\r\n"], "the login is refused"),
    "asked first": ([b"INFO {}\r\n", b"PING\r\nPONG\r\n"], ""),
    "full": ([b"INFO {}\r\n", b"-ERR 'maximum connections exceeded'\r\n"], "it turns the connection away"),
    "over TLS": ([b'INFO {"tls_required": true}\r\n'], ""),
    "another server": ([b"220 mail.example.org\r\n"], "what answers is not NATS"),
}


@pytest.mark.parametrize(("lines", "why"), NATS.values(), ids=NATS)
def test_nats_greets_and_takes_the_login(lines: list[bytes], why: str):
    heard: list[bytes] = []

    def serve(server: socket.socket) -> None:
        with server.accept()[0] as client:
            client.settimeout(10)
            for line in lines:
                client.sendall(line)
                heard.append(client.recv(1024))

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve, args=(server,))
        thread.start()
        port = server.getsockname()[1]
        assert probes.asking(lambda: probes.nats_server(f"nats://me:s%40cret@127.0.0.1:{port}"))() == why
        thread.join(20)
    assert (b'"pass": "s@cret"' in b"".join(heard)) == (len(lines) == 2)


@pytest.mark.parametrize("url", ["amqp://a:12;34@rabbitmq/x", "amqp://a:1%3B@rabbitmq/x", "amqp://12;3@rabbitmq"])
def test_a_semicolon_in_a_password_shows_nothing_of_it(url: str):
    assert probes.where(url, {"amqp": 5672}) == "rabbitmq:5672"


def test_unknown_error_is_named_by_its_class():
    assert reason(ValueError("amqp://antenna:secret@rabbitmq")) == "the connection fails (ValueError)"
    assert reason(OSError(113, "No route to host")) == "its network cannot be reached"
