"""Writes `.env` and `.env.services` with logins that agree; where one is there already, the other is made from it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from urllib.parse import quote, unquote, urlsplit

from provision import dotenv

ROOT = Path(__file__).parent.parent
EXAMPLE, SERVICES_EXAMPLE = ROOT / ".env.example", ROOT / ".env.services.example"


class Refused(Exception):
    """Nothing was written; the message says why, and what to do."""


@dataclass(frozen=True)
class Login:
    """The variables of a service's login that a URL has as its user, its password and its path."""

    url: str
    user: str = ""
    password: str = ""
    path: str = ""

    def read(self, url: str) -> dict[str, str]:
        """Return the variables' values; of several nodes' URLs, the first one's."""
        parts = urlsplit(url.partition(";")[0])
        found = {self.user: parts.username or "", self.password: parts.password or "", self.path: parts.path[1:]}
        return {name: unquote(value) for name, value in found.items() if name and value}

    def written(self, url: str, values: Mapping[str, str]) -> str:
        """Return the URL with these values."""
        parts = urlsplit(url)
        user, password = (quote(values.get(name, ""), safe="") for name in (self.user, self.password))
        path = f"/{quote(values[self.path], safe='')}" if self.path else parts.path
        return f"{parts.scheme}://{user}:{password}@{parts.hostname}:{parts.port}{path}"


LOGINS = (
    Login("CELERY_BROKER_URL", "RABBITMQ_USER", "RABBITMQ_PASSWORD", "RABBITMQ_VHOST"),
    Login("RABBITMQ_MANAGEMENT_URL", "RABBITMQ_USER", "RABBITMQ_PASSWORD"),
    Login("REDIS_URL", password="REDIS_PASSWORD"),  # noqa: S106 - a name
    Login("DATABASE_URL", "DATABASE_USER", "DATABASE_PASSWORD", "POSTGRES_DB"),
    Login("NATS_URL", "NATS_USER", "NATS_PASSWORD"),
)


def services_file(env: Path) -> Path:
    """Return where the services' logins are that belong to ``env``."""
    return env.with_name(f"{env.name}.services")


def write(env: Path, *, local: bool = False, changes: Mapping[str, str] = MappingProxyType({})) -> list[str]:
    """Write what is missing of the two files, mode 0600; return a sentence about each.

    ``local`` is for a browser on this machine, and avoids ports in use. ``changes`` are values for a new ``env``.

    Raises:
        Refused: both exist, as their secrets may be in use, or the one that exists lacks what the other needs.
    """
    services = services_file(env)
    if env.exists() and services.exists():
        raise Refused(f"{env} and {services} exist and were not changed; their secrets may be in use.")
    if env.exists():
        return [_services_from(env, services)]
    made, urls = _from_services(env, services) if services.exists() else ({}, {})
    text = EXAMPLE.read_text()
    changes = {**(dotenv.local_changes(text) if local else {}), **changes, **urls}
    texts = {env: dotenv.with_secrets(text, changes, made)}
    if not services.exists():
        texts[services] = dotenv.with_secrets(SERVICES_EXAMPLE.read_text(), made=made)
    for path, content in texts.items():
        _create(path, content)
    remark = "for this machine only" if local else "set DJANGO_ALLOWED_HOSTS to web's host names"
    source = "new secrets" if services in texts else f"the logins of {services.name}"
    return [f"{env}: written with {source}; {remark}", *(f"{path}: written" for path in texts if path != env)]


def logins(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the services' variables that the URLs of an ``env`` hold."""
    found: dict[str, str] = {}
    for login in LOGINS:
        found |= login.read(variables.get(login.url, ""))
    return found


def _services_from(env: Path, services: Path) -> str:
    variables = dotenv.variables(env.read_text())
    if unread := [login.url for login in LOGINS if variables.get(f"{login.url}_FILE")]:
        raise Refused(
            f"{services} cannot be made from {env.name}, where {unread[0]}_FILE names a file; write "
            f"{services.name} by hand, from {SERVICES_EXAMPLE.name}."
        )
    _create(services, dotenv.with_secrets(SERVICES_EXAMPLE.read_text(), logins(variables)))
    return f"{services}: written with the logins of {env.name}"


def _from_services(env: Path, services: Path) -> tuple[dict[str, str], dict[str, str]]:
    """Return each service's password, and the URLs of `.env.example` with the logins of ``services``."""
    values, example = dotenv.variables(services.read_text()), dotenv.variables(EXAMPLE.read_text())
    needed = {name for login in LOGINS for name in (login.user, login.password, login.path) if name}
    if missing := sorted(name for name in needed if not values.get(name)):
        raise Refused(
            f"{env} cannot be made from {services.name}, which has no value of {', '.join(missing)}; write "
            f"{env.name} by hand, from {EXAMPLE.name}."
        )
    made = {dotenv.account_of(login.password): quote(values[login.password], safe="") for login in LOGINS}
    return made, {login.url: login.written(example[login.url], values) for login in LOGINS}


def _create(path: Path, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
