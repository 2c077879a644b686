"""What the tests' own tasks did, as their rows in the deployment's database say; and how they are sent."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, Self

import psycopg
from celery import Celery

from ami.celery.app import AntennaCelery
from tests.support.brokers import celery_at
from tests.support.containers.deployment import Deployment

TABLE = """CREATE TABLE IF NOT EXISTS smoke_effects (
    id bigserial PRIMARY KEY, at timestamptz NOT NULL DEFAULT clock_timestamp(),
    key text NOT NULL, what text NOT NULL, node text NOT NULL, pid int NOT NULL, redelivered boolean NOT NULL)"""


class Effect(NamedTuple):
    """One row."""

    key: str
    what: str
    node: str
    pid: int
    redelivered: bool


class Effects:
    """The rows of one deployment, asked for over one connection: they are polled."""

    def __init__(self, database_url: str) -> None:
        self._connection = psycopg.connect(database_url, autocommit=True)
        self._connection.execute(TABLE)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def rows(self, prefix: str) -> list[Effect]:
        """Every effect of the keys that begin so, oldest first."""
        query = "SELECT key, what, node, pid, redelivered FROM smoke_effects WHERE starts_with(key, %s) ORDER BY id"
        return [Effect(*row) for row in self._connection.execute(query, (prefix,))]

    def ended(self, prefix: str) -> set[str]:
        return {row.key for row in self.rows(prefix) if row.what == "ended"}

    def begun(self, prefix: str) -> list[Effect]:
        return [row for row in self.rows(prefix) if row.what == "begun"]


@contextmanager
def publisher(deployment: Deployment) -> Iterator[AntennaCelery]:
    """Give this project's Celery application, pointed at the deployment's broker."""
    from config import celery_app

    with celery_at(deployment.broker_url):
        yield celery_app


def send(app: Celery, task: str, keys: Iterable[str], queue: str | None = None, **kwargs: Any) -> list[str]:
    """Publish one task for each key, each confirmed by the broker; return the keys."""
    sent = []
    for key in keys:
        app.send_task(task, kwargs={"key": key, **kwargs}, **({"queue": queue} if queue else {}))
        sent.append(key)
    return sent
