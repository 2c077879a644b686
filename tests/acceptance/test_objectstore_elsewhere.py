"""Celery on the other storages: a bucket behind a real S3 server, and the memory of one process."""

import asyncio
import os
import subprocess
import sys
import threading
import uuid
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from celery import Celery, chain

from ami.jqueue import BrokerQueue, DirectQueue, GCSStorage, S3Storage, StorageError
from ami.jqueue.__main__ import main as import_command
from ami.transports import register
from ami.transports.objectstore.broker.address import Address
from ami.transports.objectstore.queue.commands import Enqueue
from ami.transports.objectstore.queue.factory import open_store
from ami.transports.objectstore.storage.cloud import CloudObjects
from tests.support.place import ROOT, until
from tests.support.s3_server import running
from tests.support.soak import soak
from tests.support.transports.careless_bucket import MATCH, NONE_MATCH, environment, served

#: A worker starts in about two seconds, and on a machine with other work in a minute or two.
LOADED_SECONDS = 270


@pytest.fixture(scope="module")
def bucket():
    """The URL of a bucket, with the way to it in the environment, where a deployment has it."""
    if url := os.environ.get("ANTENNA_TEST_S3_URL"):
        yield f"objectstore+{url}/{uuid.uuid4().hex}"
        return
    with running() as server, pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setenv("AWS_ENDPOINT_URL", server.endpoint)
        monkeypatch.setenv("AWS_REGION", server.credentials["region"])
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", server.credentials["access_key_id"])
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", server.credentials["secret_access_key"])
        yield f"objectstore+s3://{server.make_bucket('night-work')}/broker"


@pytest.mark.timeout(2 * LOADED_SECONDS)
def test_workers_of_a_bucket_run_tasks_answer_and_hand_over(bucket, tmp_path, monkeypatch):
    register()
    monkeypatch.delenv("CELERY_BROKER_URL", raising=False)
    monkeypatch.delenv("DJANGO_SETTINGS_MODULE", raising=False)
    monkeypatch.setenv("PLAIN_BROKER", bucket)
    monkeypatch.setenv("PLAIN_FOLDER", str(tmp_path))
    app = Celery("asking", broker=bucket, backend=f"file://{tmp_path}", set_as_current=False)
    workers = [start(tmp_path, name) for name in ("prefork", "solo")]
    try:
        for name in ("prefork", "solo"):
            until(lambda name=name: " ready." in log(tmp_path, name), LOADED_SECONDS, f"{name} is ready")

        def add(*args: int):
            return app.signature("tests.support.plain_app.add", args)

        assert chain(add(1, 2), add(3), app=app)().get(timeout=LOADED_SECONDS) == 6
        results = [add(number, number).apply_async() for number in range(20)]
        assert [result.get(timeout=LOADED_SECONDS) for result in results] == [2 * number for number in range(20)]
        assert set(app.control.inspect(timeout=LOADED_SECONDS, limit=2).ping()) == {"prefork@here", "solo@here"}
        gate = tmp_path / "gate"
        result = app.signature("tests.support.plain_app.wait_for", (str(gate),)).apply_async()
        until(lambda: "started" in (tmp_path / "diary").read_text(), LOADED_SECONDS, "it runs")
        for worker in workers:
            worker.kill()
            worker.wait()
        workers.append(start(tmp_path, "solo"))
        # A bucket has no locks that show a death: the lease of two seconds has to end. A killed worker's child goes on.
        until(lambda: (tmp_path / "diary").read_text().count("started") == 2, LOADED_SECONDS, "it runs again")
        gate.touch()
        assert result.get(timeout=LOADED_SECONDS) is True
        flags = [line.split()[2] for line in (tmp_path / "diary").read_text().splitlines() if "started" in line]
        assert flags == ["False", "True"]
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
        app.close()


def start(folder: Path, pool: str) -> subprocess.Popen[bytes]:
    argv = [sys.executable, "-m", "celery", "-A", "tests.support.plain_app", "worker", "-l", "info", "-c", "1"]
    with (folder / f"{pool}.log").open("ab") as output:
        return subprocess.Popen([*argv, "-P", pool, "-n", f"{pool}@here"], cwd=ROOT, stdout=output, stderr=output)


def log(folder: Path, pool: str) -> str:
    return (folder / f"{pool}.log").read_text()


@pytest.mark.parametrize("ignored", [MATCH, NONE_MATCH])
def test_worker_refuses_a_bucket_that_ignores_conditions(ignored, tmp_path, monkeypatch):
    monkeypatch.delenv("CELERY_BROKER_URL", raising=False)
    monkeypatch.delenv("DJANGO_SETTINGS_MODULE", raising=False)
    monkeypatch.setenv("PLAIN_BROKER", "objectstore+s3://bucket/broker")
    monkeypatch.setenv("PLAIN_FOLDER", str(tmp_path))
    with served(ignores=(ignored,)) as careless:
        for name, value in environment(careless).items():
            monkeypatch.setenv(name, value)
        worker = start(tmp_path, "solo")
        assert worker.wait(LOADED_SECONDS) == 1
    assert "s3://bucket/broker ignores the condition of a" in log(tmp_path, "solo")
    assert "use a service that has them" in log(tmp_path, "solo")


def test_two_writers_that_create_a_queue_at_once_lose_nothing(bucket):
    """The first write of each is create-only; the one that finds the other's goes on behind it."""
    address = Address.parse(bucket.partition("+")[2])
    for number in range(soak(5, 15)):
        ready = threading.Barrier(2)

        def publish(name: str, prefix: str = f"race/{number}/", ready: threading.Barrier = ready) -> None:
            store = open_store(CloudObjects.s3(address.bucket, address.path), prefix)
            ready.wait(30)
            store.commit([Enqueue(f"{name}-{each}", b"x") for each in range(3)])

        threads = [threading.Thread(target=publish, args=(name,)) for name in ("left", "right")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        reader = open_store(CloudObjects.s3(address.bucket, address.path), f"race/{number}/")
        assert set(reader.look().entries) == {f"{name}-{each}" for name in ("left", "right") for each in range(3)}


def test_job_queue_is_one_object_until_it_is_imported(bucket, capsys):
    place = urlsplit(bucket.removeprefix("objectstore+"))
    kind = {"s3": S3Storage, "gs": GCSStorage}[place.scheme]
    key = f"{place.path.strip('/')}/jobs-{uuid.uuid4().hex}.json"

    async def share():
        async with BrokerQueue(kind(place.netloc, key)) as one, BrokerQueue(kind(place.netloc, key)) as other:
            await asyncio.gather(*(queue.enqueue("t", b"") for queue in (one, other) for _ in range(soak(5, 50))))
            return len((await one.read_state()).jobs)

    jobs = asyncio.run(share())
    assert jobs == 2 * soak(5, 50)
    assert import_command(["import", f"{place.scheme}://{place.netloc}/{key}"]) == 0
    assert f"Imported {jobs} jobs" in capsys.readouterr().out
    with pytest.raises(StorageError, match="was imported into"):
        asyncio.run(DirectQueue(kind(place.netloc, key)).enqueue("t", b""))
    assert len(asyncio.run(DirectQueue(kind(place.netloc, key, journal=True)).read_state()).jobs) == jobs


IN_MEMORY = """
import os
import sys
from celery import Celery
from celery.contrib.testing.worker import start_worker
from ami.transports import register

register()
app = Celery("one", broker="objectstore+memory://one", backend="cache+memory://")

@app.task
def double(number):
    return 2 * number

for pool in sys.argv[1:]:
    if not os.fork():  # Each in a process of its own.
        with start_worker(app, pool=pool, perform_ping_check=False, concurrency=2):
            results = [double.delay(number) for number in range(10)]
            print(pool, [result.get(timeout=60) for result in results], flush=True)
        os._exit(0)
    os.wait()
"""


def test_memory_serves_one_process():
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("CELERY_", "DJANGO_"))}
    pools = ["solo", "threads"]
    done = subprocess.run(
        [sys.executable, "-c", IN_MEMORY, *pools], cwd=ROOT, env=kept, capture_output=True, text=True, timeout=120
    )
    doubled = [2 * number for number in range(10)]
    assert done.stdout.splitlines() == [f"{pool} {doubled}" for pool in pools], done.stderr
