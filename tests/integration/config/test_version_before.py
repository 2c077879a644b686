"""What the version before left on disk opens with this one; ``tests.support.version_before.make`` made it."""

import asyncio
import gzip
import json
import os
import sqlite3
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from kombu import Connection

from ami import jqueue
from ami.celery.declaration import declare
from ami.jqueue.core.codec import decode
from ami.topology import topology as topologies
from ami.transports import register
from ami.transports.objectstore.__main__ import main as objectstore
from tests.support import version_before
from tests.support.place import ROOT, new_place
from tests.support.version_before import make

HERE = Path(version_before.__file__).parent


@pytest.fixture
def opened(tmp_path: Path) -> Path:
    """The archives, unpacked."""
    for name in (make.BROKER_NAME, make.QUEUE_NAME):
        with tarfile.open(HERE / name) as archive:
            archive.extractall(tmp_path, filter="data")
    return tmp_path


def taken(connection: Connection, queue: str) -> list[Any]:
    """Every message of a queue, acknowledged."""
    channel, messages = connection.channel(), []
    while (message := channel.basic_get(queue)) is not None:
        messages.append(message)
        channel.basic_ack(message.delivery_tag)
    return messages


def test_folder_broker_is_whole_and_delivers_every_message(opened: Path, capsys: pytest.CaptureFixture[str]):
    assert objectstore(["check", str(opened / "broker"), "--json"]) == 0, capsys.readouterr().out
    register()
    topology = topologies.load({})
    with Connection(f"objectstore+file://{opened / 'broker'}") as connection:
        declare(topology, connection)
        queues = [*topology.queues, *(f"{queue}.dlq" for queue in topology.queues), "antenna.unrouted"]
        found = {queue: taken(connection, queue) for queue in queues}
    sent = {queue: [(m.headers["task"], m.headers["antenna_origin"]) for m in found[queue]] for queue in queues}
    tasks = sorted((task, origin) for each in sent.values() for task, origin in each)
    assert tasks == sorted((task, origin) for task, origin, _ in make.MESSAGES)


def test_claimed_message_of_a_dead_process_is_redelivered(opened: Path):
    register()
    with Connection(f"objectstore+file://{opened / 'broker'}") as connection:
        [message] = taken(connection, "antenna-interactive")
    assert message.delivery_info["redelivered"]


def test_job_queue_in_a_folder_goes_on(opened: Path):
    async def jobs() -> list[tuple[bytes, str]]:
        state = await jqueue.DirectQueue(jqueue.LocalFileSystemStorage(opened / "queue" / "journal")).read_state()
        return [(job.payload, job.status) for job in state.jobs]

    assert asyncio.run(jobs()) == [
        (b"capture 0", "in_progress"),
        (b"capture 1", "queued"),
        (b"capture 2", "queued"),
    ]
    assert len(decode((opened / "queue" / "blob").read_bytes()).jobs) == 3


def test_job_queue_in_one_document_stays_one(opened: Path):
    async def claimed() -> list[bytes]:
        async with jqueue.BrokerQueue(jqueue.LocalFileSystemStorage(opened / "queue" / "blob")) as queue:
            return [job.payload for job in await queue.dequeue("resize", batch_size=9)]

    assert {b"capture 1", b"capture 2"} <= set(asyncio.run(claimed()))
    assert len(decode((opened / "queue" / "blob").read_bytes()).in_progress_jobs()) == 3


def test_database_is_migrated_and_keeps_its_rows(tmp_path: Path):
    path = tmp_path / "database.sqlite3"
    with sqlite3.connect(path) as database:
        database.executescript(gzip.decompress((HERE / make.SQLITE_NAME).read_bytes()).decode())
        before = counts(database)
    environment = os.environ | {"DATABASE_URL": f"sqlite:///{path}", "DJANGO_SETTINGS_MODULE": "config.settings.local"}
    for command in (["migrate", "--verbosity", "0"], ["migrate", "--check"], ["check", "--database", "default"]):
        subprocess.run([sys.executable, "manage.py", *command], cwd=ROOT, env=environment, check=True, timeout=120)
    with sqlite3.connect(path) as database:
        after = counts(database)
    own = {table for table in before if table.startswith(("main_", "ml_", "jobs_", "exports_", "telemetry_"))}
    assert len([table for table in own if before[table]]) > 25
    assert {table: after[table] for table in own} == {table: before[table] for table in own}


def counts(database: sqlite3.Connection) -> dict[str, int]:
    """The rows of each table."""
    tables = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    return {name: database.execute(f'SELECT count(*) FROM "{name}"').fetchone()[0] for name in tables}  # noqa: S608


def test_rabbitmq_definitions_are_the_same():
    before = json.loads((HERE / "definitions.json").read_text())
    accounts = {"RABBITMQ_USER": "antenna", "RABBITMQ_PASSWORD": "of-the-fixture", "RABBITMQ_VHOST": "antenna"}
    argv = [sys.executable, "-m", "ami.topology", "definitions", "--rabbitmq", "3.10"]
    printed = subprocess.run(argv, cwd=ROOT, env=os.environ | accounts, check=True, capture_output=True, text=True)
    now = json.loads(printed.stdout)
    for each in (before, now):
        each["users"][0].pop("password_hash")  # It has a new salt each time.
    assert now == before


def test_rabbitmq_that_loaded_the_definitions_is_declared_on_without_a_conflict():
    before = json.loads((HERE / "definitions.json").read_text())
    parts = {name: before[name] for name in ("exchanges", "queues", "bindings", "policies")}
    mine = {name: [{k: v for k, v in row.items() if k != "vhost"} for row in rows] for name, rows in parts.items()}
    with new_place("version before") as place:
        url = os.environ["RABBITMQ_MANAGEMENT_URL"] + f"/api/definitions/{quote(place.vhost, safe='')}"
        httpx.post(url, json=mine, timeout=60).raise_for_status()
        place.queues("declare")
        [state] = [row for row in before["queues"] if row["name"] == "antenna-ingest"]
        assert state["arguments"]["x-queue-type"] == "quorum"
        assert place.depth("antenna-ingest") == 0
