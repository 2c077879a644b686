"""The brokers that tests run on, one of its own for each place, and how Celery is pointed at it."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit, urlunsplit

import httpx
from kombu import pools

from tests.support.soak import soak

#: What a place's broker may be: a virtual host of the RabbitMQ under test, or a folder of the place's own.
RABBITMQ, FOLDER = BROKERS = ("rabbitmq", "folder")
#: For a promise in which the store of the broker has no part: on one of them, and on both under ``make soak``.
ON_RABBITMQ, ON_FOLDER = soak(BROKERS[:1], BROKERS), soak(BROKERS[1:], BROKERS)


def management(method: str, path: str, body: Any = None) -> httpx.Response:
    """Call the management API of the broker under test."""
    parts = urlsplit(os.environ["RABBITMQ_MANAGEMENT_URL"])
    url = f"{parts.scheme}://{parts.hostname}:{parts.port}/api/{path}"
    login = (parts.username or "", parts.password or "")
    # Without TLS no certificates are read, which takes longer than all the rest of the call.
    response = httpx.request(method, url, json=body, auth=login, timeout=30, verify=False)
    response.raise_for_status()
    return response


@contextmanager
def new_broker(kind: str, name: str, folder: Path) -> Iterator[str]:
    """Give the URL of a new broker, which is gone afterwards, or with ``folder``."""
    if kind == RABBITMQ:
        with _virtual_host(name) as url:
            yield url
    else:
        yield f"objectstore+{(folder / 'broker').as_uri()}"


@contextmanager
def _virtual_host(name: str) -> Iterator[str]:
    """Make a virtual host of RabbitMQ, give its URL, and delete it afterwards."""
    parts = urlsplit(os.environ["CELERY_BROKER_URL"])
    quoted = quote(name, safe="")
    management("PUT", f"vhosts/{quoted}", {})
    management("PUT", f"permissions/{quoted}/{parts.username}", {"configure": ".*", "write": ".*", "read": ".*"})
    try:
        yield urlunsplit(parts._replace(path=f"/{name}"))
    finally:
        management("DELETE", f"vhosts/{quoted}")


@contextmanager
def celery_at(broker_url: str, transport_options: dict[str, Any] | None = None) -> Iterator[None]:
    """Point this process's Celery application at a broker for a while; by default with the options it has."""
    from config import celery_app

    names = ("broker_url", "broker_read_url", "broker_write_url")
    there: dict[str, Any] = dict.fromkeys(names, broker_url)
    if transport_options is not None:
        there["broker_transport_options"] = transport_options
    before = {name: celery_app.conf[name] for name in there}
    set_broker(celery_app, there)
    try:
        yield
    finally:
        set_broker(celery_app, before)


def set_broker(app: Any, conf: dict[str, Any]) -> None:
    """Change what the application connects to, and forget the connections it has."""
    pools.reset()
    app.conf.update(conf)
    app._pool = None
    app.amqp._producer_pool = None
    app.amqp.__dict__.pop("producer_pool", None)
