"""The broker: the embedded default of local settings, and the options of each kind of broker."""

import socket
from typing import Any
from urllib.parse import urlsplit

from .environment import BASE_DIR, refuse, required_url

#: Our own transport's URLs begin with it, then comes the store's scheme: file, s3, ...
STORE = "objectstore+"

#: A broker in a folder of this checkout: a developer's machine needs no service.
EMBEDDED = f"{STORE}{(BASE_DIR / '.antenna' / 'broker').as_uri()}"

AMQP = ("amqp", "amqps")
EXAMPLE = "amqp://antenna:PASSWORD@rabbitmq:5672/antenna"


def transport_options(url: str) -> dict[str, Any]:
    """Return ``CELERY_BROKER_TRANSPORT_OPTIONS`` for the broker at ``url``.

    Confirmations and sockets are AMQP's alone. ``heartbeat`` is never among them: it is ticked only on a worker's own
    connection, so RabbitMQ would drop idle publishers (incidents 13 and 14).
    """
    if not url.startswith((*(f"{scheme}://" for scheme in AMQP), "pyamqp://")):
        return {}
    return {
        "confirm_publish": True,
        # A firewall that drops idle connections is noticed within two and a half minutes (incident 5).
        "socket_settings": {socket.TCP_KEEPIDLE: 60, socket.TCP_KEEPINTVL: 10, socket.TCP_KEEPCNT: 9},
    }


def refuse_malformed(url: str) -> None:
    """Refuse a URL of our own transport that names no store, before anything connects."""
    if not url.startswith(STORE):
        return
    from ami.transports.objectstore.broker.address import Address

    try:
        Address.parse(url.removeprefix(STORE))
    except ValueError as error:
        refuse(f"CELERY_BROKER_URL names no store: {error}.")


def refuse_unfit(url: str) -> None:
    """Refuse a broker that a deployment cannot share: RabbitMQ needs a host and a password, a store must be outside.

    A store's credentials are not in its URL, and its name takes the host's place. The nodes of a cluster are separated
    by semicolons, and each is a whole URL: a process that loses one connects to the next.
    """
    if not url.startswith(STORE):
        required_url("CELERY_BROKER_URL", EXAMPLE, (*AMQP, f"{STORE}..."), several=True)
        if len({urlsplit(node).path for node in url.split(";")}) > 1:
            refuse(
                "CELERY_BROKER_URL names nodes with different virtual hosts; a cluster has the same on each of them."
            )
    elif url.startswith(f"{STORE}memory:"):
        refuse(f"CELERY_BROKER_URL is the memory of one process, which no other sees; write it like {EXAMPLE}.")
    refuse_malformed(url)
