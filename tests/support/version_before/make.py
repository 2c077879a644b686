"""Makes what a deployment leaves on disk: ``python -m tests.support.version_before.make FOLDER``.

Run it with the code of the version before a change of formats or names, and commit what it writes: the tests open that
with the code of today. Everything is written by the product itself.
"""

import asyncio
import gzip
import json
import os
import sqlite3
import subprocess
import sys
import tarfile
from importlib import import_module
from pathlib import Path
from typing import Any

SQLITE_NAME, BROKER_NAME, QUEUE_NAME = "database.sql.gz", "folder_broker.tar.gz", "job_queue.tar.gz"

#: Task, origin, arguments: one message each.
MESSAGES = (
    ("ami.jobs.tasks.audit_jobs", "beat", {}),
    ("ami.jobs.tasks.run_job", "person", {"job_id": 1}),
    ("ami.jobs.tasks.run_job", "beat", {"job_id": 2}),
    ("ami.ml.tasks.create_detection_images", "task", {"source_image_ids": [1, 2, 3]}),
    ("nobody.routed.this", "task", {"text": "ä" * 10}),
)

#: Claims one message of a queue and dies with it.
DIE = """
import os, sys
from config.celery_app import app
connection = app.connection_for_read()
message = connection.channel().basic_get(sys.argv[1])
assert message is not None
os._exit(0)
"""


def settle(folder: Path) -> None:
    """Have everything that is configured by variables lie in ``folder``; before Django is set up."""
    os.environ["CELERY_BROKER_URL"] = f"objectstore+file://{folder / 'broker'}"
    os.environ["DATABASE_URL"] = f"sqlite:///{folder / 'database.sqlite3'}"
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings.local")


def make_broker(folder: Path) -> None:
    """Publish the messages, bury one, and let one be held by a process that is dead."""
    from config.celery_app import app

    with app.connection_for_write() as connection:
        from kombu import Connection

        assert isinstance(connection, Connection)
        declare(app, connection)
        for task, origin, kwargs in MESSAGES:
            app.send_task(task, kwargs=kwargs, headers={"antenna_origin": origin})
        channel = connection.channel()
        raw = channel.basic_get("antenna-ingest")
        channel.basic_reject(raw.delivery_tag, requeue=False)
        channel.close()
    subprocess.run([sys.executable, "-c", DIE, "antenna-interactive"], check=True)


def declare(app: Any, connection: Any) -> None:
    """Declare the topology; the function has moved once."""
    try:
        module = import_module("ami.celery.declaration")
    except ModuleNotFoundError:
        module = import_module("ami.queues.declare")
    module.declare(app.topology, connection)


def make_database(folder: Path) -> None:
    """Migrate a database and put a row of every model into it."""
    from django.core.management import call_command

    from tests.support.product import admin_rows

    call_command("migrate", verbosity=0)
    admin_rows.everything()
    dump = "\n".join(sqlite3.connect(folder / "database.sqlite3").iterdump())
    (folder / SQLITE_NAME).write_bytes(gzip.compress(dump.encode(), mtime=0))


async def make_queue(folder: Path) -> None:
    """Make a job queue in a folder, with a claimed job, and one in the single JSON document of earlier versions."""
    try:
        jqueue = import_module("ami.jqueue")
        codec = import_module("ami.jqueue.core.codec")
    except ModuleNotFoundError:
        jqueue = import_module("ami.transports.objectstore")
        codec = import_module("ami.transports.objectstore.codec")
    queue = jqueue.DirectQueue(jqueue.LocalFileSystemStorage(folder / "queue" / "journal"))
    for number in range(3):
        await queue.enqueue("resize", f"capture {number}".encode(), priority=number)
    await queue.dequeue("resize")
    (folder / "queue" / "blob").write_bytes(codec.encode(await queue.read_state()))


def pack(folder: Path, name: str, part: str) -> None:
    """Write a part of the folder to an archive."""
    with tarfile.open(folder / name, "w:gz") as archive:
        archive.add(folder / part, part)


def main() -> None:
    """Make all of it."""
    folder = Path(sys.argv[1]).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    settle(folder)
    import django

    django.setup()
    make_database(folder)
    make_broker(folder)
    (folder / "queue").mkdir(exist_ok=True)
    asyncio.run(make_queue(folder))
    pack(folder, BROKER_NAME, "broker")
    pack(folder, QUEUE_NAME, "queue")
    definitions = [sys.executable, "-m", "ami.topology", "definitions", "--rabbitmq", "3.10"]
    accounts = {"RABBITMQ_USER": "antenna", "RABBITMQ_PASSWORD": "of-the-fixture", "RABBITMQ_VHOST": "antenna"}
    found = subprocess.run(definitions, env=os.environ | accounts, check=True, capture_output=True, text=True).stdout
    (folder / "definitions.json").write_text(json.dumps(json.loads(found), indent=1) + "\n")


if __name__ == "__main__":
    main()
