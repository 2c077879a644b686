"""The deployment's containers, as pytest-celery knows them: its workers, and brokers that want a password."""

from ami.topology.table import ROWS
from ami.topology.workload import Workload
from tests.support.celery_suite.vendor import (
    CeleryTestContainer,
    CeleryWorkerContainer,
    RabbitMQContainer,
    RedisContainer,
)
from tests.support.containers.deployment import Deployment
from tests.support.containers.engine import client, docker


class Server(CeleryTestContainer):
    """The container of a server, reached by its service's name in the network and where it is published outside."""

    def __init__(self, deployment: Deployment, service: str, url: str, host_url: str) -> None:
        super().__init__(client().containers.get(deployment.container(service)))
        self._service, self._url, self._host_url = service, url, host_url

    @property
    def hostname(self) -> str:
        return self._service

    @property
    def url(self) -> str:
        return self._url

    @property
    def host_url(self) -> str:
        return self._host_url

    @property
    def vhost(self) -> str:
        return self._url.rsplit("/", 1)[1]

    def get_addr(self, port: str) -> tuple[str, int]:
        """Return where a port like ``5672/tcp`` is published here, also when the tests run in a container."""
        return "127.0.0.1", self.ports[port][0]


class Broker(Server, RabbitMQContainer):
    """RabbitMQ as deployed: its user and virtual host are in the definitions that it loads."""


class Results(Server, RedisContainer):
    """Redis with a password, for results and the cache."""


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

    def shell(self, script: str) -> str:
        """Run a script inside, as the worker's own user."""
        return docker("exec", self.id, "sh", "-c", script)


#: A class for each worker that is on by default, by its service.
WORKERS: dict[str, type[Worker]] = {
    row.service: type(f"{row.key.title()}Worker", (Worker,), {"row": row}) for row in ROWS if not row.enabled_by
}
