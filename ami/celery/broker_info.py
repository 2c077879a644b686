"""What ``celery inspect stats``, and with it Flower, shows of a worker's broker: nothing that is secret."""

from collections.abc import Mapping
from typing import Any

from celery import bootsteps
from celery.worker.consumer import Connection

from ami.environment.url_login import masked_url

MASK = "**"

#: An option whose name contains one of these is not shown, unless it is a prefix of names.
SECRET_WORDS = ("pass", "secret", "token", "key", "credential", "signature")


def masked_info(info: Mapping[str, Any]) -> dict[str, Any]:
    """Return kombu's ``Connection.info()`` without secrets: its host is a whole URL where a transport parses it."""
    shown = {name: _masked(name, value) for name, value in info.items() if name not in ("password", "alternates")}
    shown["alternates"] = [masked_url(url) for url in info.get("alternates") or () if isinstance(url, str)]
    return shown


def _masked(name: str, value: Any) -> Any:
    if value and any(word in name.lower() for word in SECRET_WORDS) and not name.lower().endswith("prefix"):
        return MASK
    if isinstance(value, Mapping):
        return {str(key): _masked(str(key), each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_masked(name, each) for each in value]
    return masked_url(value) if isinstance(value, str) else value


class MaskBroker(bootsteps.StartStopStep):
    """Replaces what Celery's own step shows of the broker."""

    requires = (Connection,)

    def info(self, consumer: Any) -> dict[str, Any]:
        """Return the ``broker`` of ``celery inspect stats``."""
        return {"broker": masked_info(consumer.connection.info()) if consumer.connection else "N/A"}
