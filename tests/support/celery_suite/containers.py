"""The containers, as pytest-celery knows them: this project's workers, and brokers that want a password."""

from typing import Any

import psycopg

from ami.topology.table import ROWS
from ami.topology.workload import Workload
from tests.support.celery_suite.vendor import (
    CeleryTestContainer,
    CeleryWorkerContainer,
    RabbitMQContainer,
    RedisContainer,
)
from tests.support.containers.engine import docker, inspect
from tests.support.place import until


class Server(CeleryTestContainer):
    """A container that others reach by its name in their network."""

    @property
    def hostname(self) -> str:
        return str(self.attrs["Config"]["Hostname"])


class Published(Server):
    """A container whose ports are reached where the engine publishes them, on this machine.

    pytest-docker-tools goes to the container's own address when a file says that the tests run in a container.
    """

    def get_addr(self, port: str) -> tuple[str, int]:
        """Return where a port like ``5672/tcp`` is reached."""
        return "127.0.0.1", self.ports[port][0]


class Broker(Published, RabbitMQContainer):
    """RabbitMQ as deployed: its user and virtual host are in the definitions that it loads."""

    @property
    def url(self) -> str:
        return self._url(f"{self.hostname}:5672")

    @property
    def host_url(self) -> str:
        return self._url(f"127.0.0.1:{self.port}")

    @property
    def vhost(self) -> str:
        return self.env["RABBITMQ_DEFAULT_VHOST"]

    def _url(self, place: str) -> str:
        login = f"{self.env['RABBITMQ_DEFAULT_USER']}:{self.env['RABBITMQ_DEFAULT_PASS']}"
        return f"{self.prefix()}{login}@{place}/{self.vhost}"


class Results(Published, RedisContainer):
    """Redis with a password, for results and the cache."""

    @property
    def url(self) -> str:
        return self._url(f"{self.hostname}:6379")

    @property
    def host_url(self) -> str:
        return self._url(f"127.0.0.1:{self.port}")

    def _url(self, place: str) -> str:
        return f"{self.prefix()}:{self.env['REDIS_PASSWORD']}@{place}/{self.vhost}"


class Database(Published):
    """PostgreSQL."""

    @property
    def url(self) -> str:
        return self._url(f"{self.hostname}:5432")

    @property
    def host_url(self) -> str:
        return self._url("{}:{}".format(*self.get_addr("5432/tcp")))

    def ready(self) -> bool:
        """Say whether one may log in over TCP: while the database is being made, the server answers on its socket."""
        if not super().ready():
            return False
        try:
            psycopg.connect(self.host_url, connect_timeout=3).close()
        except psycopg.OperationalError:
            return False
        return True

    def _url(self, place: str) -> str:
        login = f"{self.env['POSTGRES_USER']}:{self.env['POSTGRES_PASSWORD']}"
        return f"postgres://{login}@{place}/{self.env['POSTGRES_DB']}"


class Beat(CeleryTestContainer):
    """The scheduler."""

    @property
    def ready_prompt(self) -> str:
        return "beat: Starting..."


class Flower(Published):
    """What operators watch workers with."""

    @property
    def ready_prompt(self) -> str:
        return "Visit me at"


class Worker(CeleryWorkerContainer):
    """The worker of one row of the topology."""

    row: Workload

    @classmethod
    def worker_name(cls) -> str:
        """Return the first half of its node name."""
        return cls.row.key.lower()

    @classmethod
    def worker_queue(cls) -> str:
        """Return its queue."""
        return cls.row.queue

    @property
    def state(self) -> dict[str, Any]:
        """What the engine says of it now."""
        return inspect(self.id)

    def shell(self, script: str) -> str:
        """Run a script inside, as the worker's own user."""
        return docker("exec", self.id, "sh", "-c", script)

    @property
    def times_ready(self) -> int:
        """How often it has said that it is ready: once for each start."""
        return self.logs().count(self.ready_prompt)

    def start(self) -> None:
        """Start it after it was stopped, and return when its worker consumes."""
        before = self.times_ready
        docker("start", self.id)
        self.until_ready_again(before)

    def until_ready_again(self, before: int) -> None:
        """Return when it has said more than ``before`` times that it is ready."""
        until(lambda: self.times_ready > before, 90, f"{self.worker_name()} is ready again")
        self.reload()


#: A class for each worker that is on by default, by its service.
WORKERS: dict[str, type[Worker]] = {
    row.service: type(f"{row.key.title()}Worker", (Worker,), {"row": row}) for row in ROWS if not row.enabled_by
}
