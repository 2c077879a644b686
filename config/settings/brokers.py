"""The broker: the embedded default of local settings, and the options of each kind of broker."""

from typing import Any
from urllib.parse import urlsplit

from ami.environment.declaration import of
from config.schema.addresses import Addresses
from config.schema.urls import wrong_url

from .environment import BASE_DIR
from .keepalive import DEFAULT_SECONDS, tcp_options

#: Our own transport's URLs begin with it, then comes the store's scheme: file, s3, ...
STORE = "objectstore+"

#: A broker in a folder of this checkout: a developer's machine needs no service.
EMBEDDED = f"{STORE}{(BASE_DIR / '.antenna' / 'broker').as_uri()}"

AMQP = ("amqp", "amqps")
#: What a developer's machine may use besides (docs/brokers.md).
MEMORY = "memory://"
KINDS = (*AMQP, "pyamqp", "redis", "rediss", f"{STORE}...")

BROKER = of(Addresses, "celery_broker_url")


def transport_options(url: str, keepalive_seconds: int = DEFAULT_SECONDS) -> dict[str, Any]:
    """Return ``CELERY_BROKER_TRANSPORT_OPTIONS`` for the broker at ``url``.

    Confirmations and sockets are AMQP's alone. ``heartbeat`` is never among them: it is ticked only on a worker's own
    connection, so RabbitMQ would drop idle publishers (incidents 13 and 14).
    """
    if not url.startswith((*(f"{scheme}://" for scheme in AMQP), "pyamqp://")):
        return {}
    return {"confirm_publish": True, "socket_settings": tcp_options(keepalive_seconds)}


def wrong_broker(url: str) -> str:
    """Return what is wrong with a broker's URL for any kind of settings, or nothing."""
    if not url.startswith(STORE):
        return wrong_url(BROKER, url.partition(";")[0], KINDS, password=False) if url != MEMORY else ""
    from ami.transports.objectstore.broker.address import Address

    try:
        Address.parse(url.removeprefix(STORE))
    except ValueError as error:
        return f"{BROKER.name} names no store: {error}."
    return ""


def unfit_broker(url: str) -> str:
    """Return why a deployment cannot share this broker, or nothing.

    RabbitMQ needs a host and a password. A store's credentials are not in its URL, and its name takes the host's place.
    The nodes of a cluster are separated by semicolons, and each is a whole URL: a process that loses one connects to
    the next.
    """
    if url.startswith(f"{STORE}memory:"):
        return f"{BROKER.name} is the memory of one process, which no other sees; write it like {BROKER.example}."
    if url.startswith(STORE):
        return wrong_broker(url)
    nodes = url.split(";")
    if wrong := next(filter(None, (wrong_url(BROKER, node, (*AMQP, f"{STORE}...")) for node in nodes)), ""):
        return wrong
    if len({urlsplit(node).path for node in nodes}) > 1:
        return f"{BROKER.name} names nodes with different virtual hosts; a cluster has the same on each of them."
    return ""
