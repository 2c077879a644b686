"""Takes a dead worker's messages back: closes its connections on RabbitMQ, ends its leases on a broker with leases."""

from typing import Any

from django.conf import settings

from ami.celery.broker_kind import kind_of
from ami.queues.management_api import ManagementApi, ManagementUnavailable
from ami.queues.models import Worker

REASON = "rescued: the worker did not answer"


def take_back(app: Any, row: Worker) -> int:
    """Make the broker deliver again what the worker held; return how many connections or consumers were closed.

    Raises:
        ManagementUnavailable: RabbitMQ's management API does not answer or refuses: its heartbeats decide then.
        kombu.exceptions.OperationalError: the broker does not answer.
    """
    with app.connection_for_write() as connection:
        kind = kind_of(connection)
        if kind.is_managed:
            api = ManagementApi(settings.RABBITMQ_MANAGEMENT_URL, connection.virtual_host)
            return close_by_name(api, row.connection_name)
        connection.ensure_connection(max_retries=1, timeout=5)
        requeue = getattr(connection.transport, "requeue_leases", None)
        return sum(requeue(owner) for owner in row.consumers) if requeue else 0


def why_unreachable(app: Any) -> str:
    """Return why connections cannot be closed by name: no management API, or it refuses; empty where they can be."""
    with app.connection_for_write() as connection:
        if not kind_of(connection).is_managed:
            return ""
        try:
            ManagementApi(settings.RABBITMQ_MANAGEMENT_URL, connection.virtual_host).connections()
        except ManagementUnavailable as error:
            return str(error)
    return ""


def close_by_name(api: ManagementApi, name: str) -> int:
    """Close every connection with this client-provided name; return how many."""
    found = [each["name"] for each in api.connections() if _given_name(each) == name] if name else []
    return sum(api.close_connection(each, REASON) for each in found)


def _given_name(connection: dict[str, Any]) -> str:
    return str((connection.get("client_properties") or {}).get("connection_name") or "")
