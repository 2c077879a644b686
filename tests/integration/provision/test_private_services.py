"""Each private service is started, used, killed, restarted with its data, and removed without residue."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import kombu
import nats
import psycopg
import pytest
import redis

from provision import services, urls
from provision.kind import NothingFound, NotManaged, Unavailable
from provision.service import Service


def processes_of(folder: Path) -> list[int]:
    """Every living process with the folder in its command line, environment or working directory."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            text = Path(f"/proc/{name}/cmdline").read_text(errors="replace")
            text += Path(f"/proc/{name}/environ").read_text(errors="replace")
            text += os.readlink(f"/proc/{name}/cwd")  # Redis writes its title over its environment
        except OSError:
            continue
        if str(folder) in text:
            found.append(int(name))
    return found


def eventually(holds: Callable[[], bool], seconds: float = 60) -> None:
    deadline, tick = time.monotonic() + seconds, threading.Event()
    while not holds():
        assert time.monotonic() < deadline, "it did not happen in time"
        tick.wait(0.05)


@dataclass(frozen=True)
class Four:
    """All four private services, and the lines that reported them."""

    services: dict[str, Service]
    lines: list[str]

    def __getitem__(self, name: str) -> Service:
        return self.services[name]


@pytest.fixture(scope="module")
def four() -> Iterator[Four]:
    """All private services, shared by these tests: RabbitMQ alone takes 8 s of processor time to start.

    Asserts at the end that nothing is left. Without services: a skip on a laptop, a failure in CI.
    """
    lines: list[str] = []
    try:
        with services.running(private=True, say=lines.append) as found:
            folders = [service.folder for service in found.values() if service.folder]
            yield Four(found, lines)
    except NothingFound as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(error))
    assert [processes_of(folder) for folder in folders] == [[], [], [], []]
    assert not any(folder.exists() for folder in folders)


def crash_and_return(service: Service) -> None:
    """kill -9 and restart: refused in between, then a new process at the same URL."""
    before, url, pid = set(processes_of(service.folder or Path("?"))), service.url, service.pid
    service.kill()
    assert service.pid is None
    assert not before & set(processes_of(service.folder or Path("?")))
    with pytest.raises(Unavailable, match="connection refused"):
        services.KINDS[service.name].probe(service.url, 3)
    service.restart()
    assert service.url == url
    assert service.pid not in (None, pid)


def test_all_four_services_start_together(four: Four) -> None:
    assert list(four.services) == ["rabbitmq", "redis", "postgres", "nats"]
    folders = [service.folder for service in four.services.values() if service.folder]
    passwords = [urlsplit(service.url).password for service in four.services.values()]
    assert len(folders) == 4
    assert len([line for line in four.lines if "started a private" in line]) == 4
    assert not [line for line in four.lines for password in passwords if password and password in line]
    for service in four.services.values():
        assert service.folder
        assert service.pid in processes_of(service.folder)


def test_redis_keeps_its_data_over_a_kill(four: Four) -> None:
    service = four["redis"]
    with redis.Redis.from_url(service.url) as client:
        client.set("moth", "Noctua pronuba")
    crash_and_return(service)
    with redis.Redis.from_url(service.url) as client:
        assert client.get("moth") == b"Noctua pronuba"


def test_postgres_keeps_its_data_over_a_kill(four: Four) -> None:
    service = four["postgres"]
    with psycopg.connect(service.url) as connection:
        connection.execute("CREATE TABLE moth (name text)")
        connection.execute("INSERT INTO moth VALUES ('Éupithecia')")
    crash_and_return(service)
    with psycopg.connect(service.url) as connection:
        assert connection.execute("SELECT lower(name) FROM moth").fetchall() == [("éupithecia",)]
        assert connection.execute("SHOW timezone").fetchone() == ("UTC",)


def test_nats_keeps_a_stream_over_a_kill(four: Four) -> None:
    service = four["nats"]

    async def publish() -> None:
        client = await nats.connect(service.url)
        stream = client.jetstream()
        await stream.add_stream(name="moths", subjects=["moths.*"])
        await stream.publish("moths.seen", b"Noctua pronuba")
        await client.close()

    async def read() -> bytes | None:
        client = await nats.connect(service.url)
        message = await client.jetstream().get_msg("moths", 1)
        await client.close()
        return message.data

    asyncio.run(publish())
    crash_and_return(service)
    assert asyncio.run(read()) == b"Noctua pronuba"


def quorum_queue(connection: kombu.Connection) -> kombu.simple.SimpleQueue:
    queue = kombu.Queue("moths", routing_key="moths", durable=True, queue_arguments={"x-queue-type": "quorum"})
    return connection.SimpleQueue(queue)


def test_rabbitmq_listens_on_loopback_only(four: Four) -> None:
    rabbitmq = four["rabbitmq"]
    assert rabbitmq.management_url
    assert rabbitmq.folder
    inodes = set()
    for pid in processes_of(rabbitmq.folder):
        for link in Path(f"/proc/{pid}/fd").iterdir():
            try:
                inodes.add(os.readlink(link))
            except OSError:
                continue
    listening = []
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and f"socket:[{fields[9]}]" in inodes:
                listening.append(fields[1].partition(":"))
    ports = {int(port, 16) for _, _, port in listening}
    assert {urlsplit(rabbitmq.url).port, urlsplit(rabbitmq.management_url).port} <= ports
    loopback = ("0100007F", "0000000000000000FFFF00000100007F", "00000000000000000000000001000000")
    assert {address for address, _, _ in listening} <= set(loopback)


def test_service_at_its_url_is_used_and_cannot_be_stopped(four: Four) -> None:
    lines: list[str] = []
    environ = {"REDIS_URL": four["redis"].url}
    with services.running(["redis"], environ=environ, say=lines.append) as again:
        assert again["redis"].how == "at its URL"
        assert again["redis"].url == four["redis"].url
        with pytest.raises(NotManaged):
            again["redis"].kill()
    assert "using Redis" in lines[0]
    assert urls.redis_server(four["redis"].url)


def test_unreachable_url_falls_back_to_a_private_service() -> None:
    lines: list[str] = []
    environ = {"REDIS_URL": "redis://:hunter2@127.0.0.1:1/0"}
    with services.running(["redis"], environ=environ, say=lines.append) as found:
        assert found["redis"].how.startswith("private")
    [line] = [line for line in lines if "started" in line]
    assert "127.0.0.1:1 (connection refused); started a private Redis" in line
    assert "hunter2" not in line


def test_nats_without_jetstream_is_unavailable(tmp_path: Path) -> None:
    with services.running(["nats"], private=True) as found:
        process = found["nats"].process
        assert process
        found["nats"].stop()
        configuration = process.launch.folder / "nats.conf"
        configuration.write_text(f"host: 127.0.0.1\nport: {process.launch.port}\n")
        process._spawn()  # start without waiting: its probe never succeeds

        def accepts() -> bool:
            with socket.socket() as probe:
                return probe.connect_ex(("127.0.0.1", process.launch.port)) == 0

        eventually(accepts)
        with pytest.raises(Unavailable, match="without JetStream"):
            urls.nats_server(found["nats"].url)


def test_wrong_password_is_reported_as_a_refused_login(four: Four) -> None:
    rabbitmq = four["rabbitmq"]
    password = urlsplit(rabbitmq.url).password
    assert password
    with pytest.raises(Unavailable, match="login refused"):
        urls.rabbitmq(rabbitmq.url.replace(password, "wrong"))
    with pytest.raises(Unavailable, match="no access to the virtual host"):
        urls.rabbitmq(rabbitmq.url.removesuffix("//") + "/elsewhere")


def test_rabbitmq_keeps_a_quorum_queue_over_a_kill_and_a_stop(four: Four) -> None:
    rabbitmq = four["rabbitmq"]
    assert rabbitmq.management_url
    confirmed = kombu.Connection(rabbitmq.url, transport_options={"confirm_publish": True})
    with confirmed as connection, quorum_queue(connection) as queue:
        queue.put({"name": "Noctua pronuba"})
    assert rabbitmq.folder
    [registry] = rabbitmq.folder.glob("data/*/quorum/*/names.dets")
    eventually(lambda: b"moths" in registry.read_bytes())  # written half a second late
    crash_and_return(rabbitmq)
    rabbitmq.stop()
    rabbitmq.restart()
    with kombu.Connection(rabbitmq.url) as connection, quorum_queue(connection) as queue:
        message = queue.get(timeout=10)
        assert message.payload == {"name": "Noctua pronuba"}
        message.ack()
    assert urls.management(rabbitmq.management_url).startswith("management ")


def test_failed_start_reports_the_end_of_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    from provision import redis as private_redis

    monkeypatch.setattr(private_redis, "CONFIGURATION", "no-such-directive {port} {data}\n")
    environ = {"ANTENNA_PROVISION_SKIP": "wheel,apt,compose"}
    failing = services.running(["redis"], private=True, environ=environ)
    with pytest.raises(NothingFound, match="ended while starting.*no-such-directive"), failing:
        pass
