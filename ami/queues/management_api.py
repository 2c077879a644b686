"""RabbitMQ's management API, for what AMQP does not report."""

import re
from collections.abc import Iterable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote, urlsplit

from ami.queues.certificates import trusted

if TYPE_CHECKING:
    import httpx

TIMEOUT_SECONDS = 5.0
HOW = "write http://USER:PASSWORD@HOST:15672"


@cache
def _client() -> "httpx.Client":
    """Return this process's client, which keeps no connection open: making one costs more than a request."""
    import httpx  # Few commands need it.

    return httpx.Client(verify=trusted(), timeout=TIMEOUT_SECONDS, limits=httpx.Limits(max_keepalive_connections=0))


class ManagementUnavailable(Exception):
    """The management API has no URL, does not answer, or refuses the credentials; the text says which."""


class ManagementApi:
    """One RabbitMQ management API, seen from one virtual host; ``address`` ends with ``/api``, without the login."""

    def __init__(self, url: str, vhost: str) -> None:
        if not url:
            raise ManagementUnavailable("RABBITMQ_MANAGEMENT_URL is not set")
        try:
            parts = urlsplit(url)
            port = f":{parts.port}" if parts.port else ""
        except ValueError:
            raise ManagementUnavailable(f"RABBITMQ_MANAGEMENT_URL is not a URL; {HOW}") from None
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ManagementUnavailable(f"RABBITMQ_MANAGEMENT_URL names no host; {HOW}")
        host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
        self.address = f"{parts.scheme}://{host}{port}{parts.path.rstrip('/')}/api"
        self.login = (unquote(parts.username or ""), unquote(parts.password or ""))
        self._vhost = quote(vhost or "/", safe="")

    def version(self) -> tuple[int, ...]:
        """Return RabbitMQ's version, for example ``(3, 10, 8)``."""
        text = str(self._get("overview")["rabbitmq_version"])
        return tuple(int(part) for part in re.findall(r"\d+", re.split(r"[-+]", text)[0]))

    def queues(self) -> list[dict[str, Any]]:
        """Return every queue of the virtual host."""
        return list(self._get(f"queues/{self._vhost}"))

    def bindings(self, queue: str) -> list[dict[str, Any]]:
        """Return the bindings of one queue, each with its ``source`` exchange and ``routing_key``."""
        return list(self._get(f"queues/{self._vhost}/{quote(queue, safe='')}/bindings"))

    def all_bindings(self) -> list[dict[str, Any]]:
        """Return every binding of the virtual host, those of exchanges, too (``destination_type``)."""
        return list(self._get(f"bindings/{self._vhost}"))

    def alarms(self) -> list[str]:
        """Return the resource alarms in force, each as ``<node>: memory`` or ``<node>: disk``."""
        return [
            f"{node['name']}: {kind}"
            for node in self._get("nodes")
            for kind, flag in (("memory", "mem_alarm"), ("disk", "disk_free_alarm"))
            if node.get(flag)
        ]

    def connections(self) -> list[dict[str, Any]]:
        """Return every connection; a new one is listed after about three seconds."""
        return list(self._get(f"vhosts/{self._vhost}/connections"))

    def close_connection(self, name: str, reason: str) -> bool:
        """Close a connection by the broker's name for it; return False if it is not there any more."""
        response = self._request(
            "DELETE", f"connections/{quote(name, safe='')}", headers={"X-Reason": reason}, expected=(404,)
        )
        return response.status_code != 404

    def blocked_connections(self) -> list[str]:
        """Return the names of the connections that RabbitMQ blocks from publishing."""
        return [
            str(connection.get("client_properties", {}).get("connection_name") or connection["name"])
            for connection in self._get("connections")
            if connection.get("state") in ("blocked", "blocking")
        ]

    def policies(self) -> dict[str, dict[str, Any]]:
        """Return the virtual host's policies by name."""
        return {policy["name"]: policy for policy in self._get(f"policies/{self._vhost}")}

    def put_policies(self, policies: Iterable[dict[str, Any]]) -> list[str]:
        """Create or replace policies; return their names."""
        names = []
        for policy in policies:
            name = policy["name"]
            body = {key: value for key, value in policy.items() if key != "name"}
            self._request("PUT", f"policies/{self._vhost}/{quote(name, safe='')}", body)
            names.append(name)
        return names

    def _get(self, path: str) -> Any:
        try:
            return self._request("GET", path).json()
        except ValueError as error:
            raise ManagementUnavailable(
                f"{self.address}/{path} did not answer with JSON; is it the management API?"
            ) from error

    def _request(
        self,
        method: str,
        path: str,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        expected: tuple[int, ...] = (),
    ) -> "httpx.Response":
        import httpx

        try:
            url = f"{self.address}/{path}"
            response = _client().request(method, url, json=body, auth=self.login, headers=dict(headers or {}))
        except httpx.HTTPError as error:
            raise ManagementUnavailable(f"{self.address} does not answer ({type(error).__name__})") from error
        if response.status_code >= 400 and response.status_code not in expected:
            raise ManagementUnavailable(f"{self.address}/{path} answered {response.status_code}")
        return response
