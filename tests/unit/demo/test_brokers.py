"""The demo's choice of a broker; only the demo's own data is changed."""

import argparse
import os
import sqlite3
import subprocess
from contextlib import ExitStack
from pathlib import Path

import pytest

from demo import brokers
from demo.environment import fresh_database, prepare
from tests.support import forked_python

GOOD = ("embedded", "rabbitmq", "amqp://guest:guest@127.0.0.1:5672//", "objectstore+file:///var/lib/antenna/broker")
BAD = {
    "misspelt": (
        "rabitmq",
        "'rabitmq' is not a broker; use embedded, rabbitmq, or a URL like .*Did you mean 'rabbitmq'?",
    ),
    "nothing": ("", "is not a broker"),
    "unknown scheme": ("rabbit://broker", "rabbit:// is not a known broker scheme"),
    "the memory of one process": ("objectstore+memory://", "is limited to one process, and the demo has many"),
    "an unknown store": ("objectstore+s4://bucket", "'s4' is not an object storage; write objectstore.file:"),
    "a folder without a path": ("objectstore+file://", "a folder needs an absolute path after file://"),
    "kombu's memory": ("memory://", "is limited to one process, and the demo has many"),
}


@pytest.mark.parametrize("value", GOOD)
def test_broker_is_a_name_or_a_url(value: str):
    assert brokers.broker(value) == value


@pytest.mark.parametrize(("value", "sentence"), BAD.values(), ids=BAD)
def test_invalid_broker_is_refused_with_the_choices(value: str, sentence: str):
    with pytest.raises(argparse.ArgumentTypeError, match=sentence) as refused:
        brokers.broker(value)
    assert "objectstore+file:///" in str(refused.value)


def test_refusal_contains_no_password():
    with pytest.raises(argparse.ArgumentTypeError) as refused:
        brokers.broker("ampq://guest:sesame@rabbitmq:5672//")
    assert "sesame" not in str(refused.value)
    assert "Did you mean 'amqp'?" in str(refused.value)


def demo(*argv: str) -> subprocess.CompletedProcess[str]:
    """Run ``python -m demo ARGV``."""
    return forked_python.run(["-m", "demo", *argv], env=dict(os.environ))


@pytest.mark.processes
def test_invalid_broker_exits_before_the_folder_is_emptied(tmp_path: Path):
    (tmp_path / "report").mkdir()
    done = demo("--broker", "rabitmq", "--folder", str(tmp_path))
    assert done.returncode == 2
    assert "Did you mean 'rabbitmq'?" in done.stderr
    assert (tmp_path / "report").exists()


@pytest.mark.processes
def test_unreachable_broker_is_reported_without_its_password(tmp_path: Path):
    done = demo("--broker", "amqp://guest:sesame@127.0.0.1:1//", "--folder", str(tmp_path / "demo"))
    assert done.returncode == 1
    assert "nothing usable at 127.0.0.1:1 (connection refused)" in done.stdout
    assert "sesame" not in done.stdout + done.stderr


@pytest.fixture
def nats(monkeypatch: pytest.MonkeyPatch):
    """A fake private NATS."""
    monkeypatch.setattr(brokers, "private_nats", lambda *_: {"NATS_URL": "nats://127.0.0.1:1"})


@pytest.mark.usefixtures("nats")
def test_embedded_broker_keeps_everything_in_the_demo_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("DATABASE_URL", "postgres://antenna:sesame@production/antenna")
    monkeypatch.setenv("REDIS_URL", "redis://production")
    monkeypatch.setenv("CELERY_BROKER_URL", "amqp://production")
    lines: list[str] = []
    environment = prepare(tmp_path / "demo")
    with ExitStack() as stack:
        services = brokers.obtain(brokers.EMBEDDED, environment.folder, stack, lines.append)
    variables = environment.variables(services)
    assert variables["CELERY_BROKER_URL"] == f"objectstore+file://{tmp_path}/demo/broker"
    assert variables["DATABASE_URL"] == f"sqlite:///{tmp_path}/demo/antenna_demo.sqlite3"
    assert variables["REDIS_URL"] == variables["RABBITMQ_MANAGEMENT_URL"] == ""
    assert variables["CELERY_RESULT_BACKEND"] == ""
    assert lines == [
        f"broker: objectstore+file at {tmp_path}/demo/broker",
        f"database: SQLite {sqlite3.sqlite_version} at {tmp_path}/demo/antenna_demo.sqlite3",
        "cache and results: in the database",
    ]


def test_fresh_database_replaces_only_the_demo_file(tmp_path: Path):
    for name in ("antenna_demo.sqlite3", "antenna_demo.sqlite3-wal", "antenna.sqlite3"):
        (tmp_path / name).touch()
    assert (
        fresh_database("sqlite:////var/lib/antenna.sqlite3", tmp_path) == f"sqlite:///{tmp_path}/antenna_demo.sqlite3"
    )
    assert [path.name for path in tmp_path.iterdir()] == ["antenna.sqlite3"]
