"""Makes a `.env` from `.env.example`: every `change-me` replaced by a secret of its own."""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from provision.ports import free_ports, is_free

PLACEHOLDER = "change-me"
SIGNING_KEY = "DJANGO_SECRET_KEY"

#: What makes web answer a browser on the same machine, where no proxy speaks https before it.
LOCAL = {
    "DJANGO_ALLOWED_HOSTS": "localhost,127.0.0.1,web",
    "DJANGO_SECURE_SSL_REDIRECT": "0",
    "ANTENNA_PROXIES": "0",
    # Inside a container, localhost is that container.
    "ANTENNA_SERVICES_URL": "http://web:8000",
}

WEB_PORT = "PUBLISHED_WEB_PORT"
PUBLISHED = re.compile(r"^#?(PUBLISHED_[A-Z_]+_PORT)=(\d+)$", re.M)

KEPT = ("PATH", "HOME", "TMPDIR", "LANG", "TERM")

#: Passwords stand in URLs, so they have nothing to percent-encode.
PASSWORD_BYTES = 24


class AlreadyThere(Exception):
    """The file exists; the text names it."""


def with_secrets(example: str, changes: Mapping[str, str] = MappingProxyType({})) -> str:
    """Return the example with its placeholders replaced and ``changes`` made, comments and all.

    A service's password stands in more than one variable (``RABBITMQ_PASSWORD`` and the URLs with its user), so each
    service, known by the user or the service that a line names, gets one secret.
    """
    made: dict[str, str] = {}
    return "".join(_filled(_changed(line, changes), made) for line in example.splitlines(keepends=True))


def variables(text: str) -> dict[str, str]:
    """Return what a `.env` sets; comments set nothing."""
    found = (line.partition("=") for line in text.splitlines() if re.match(r"[A-Z]", line))
    return {name: value for name, _, value in found}


def write(path: Path, example: Path, *, local: bool = False) -> None:
    """Write the file, readable by its owner alone; ``local`` is for one machine and its own browser, where a port that
    somebody has already is not published on.

    Raises:
        AlreadyThere: it exists; its secrets are in use.
    """
    text = example.read_text()
    text = with_secrets(text, local_changes(text) if local else {})
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise AlreadyThere(f"{path} exists and is left as it is; its secrets are in use") from None
    with os.fdopen(descriptor, "w") as file:
        file.write(text)


def local_changes(example: str) -> dict[str, str]:
    """Return what one machine and its own browser need: ports that are free, and web's address for stored links."""
    ports = taken_ports(example)
    port = ports.get(WEB_PORT) or dict(PUBLISHED.findall(example))[WEB_PORT]
    return {**LOCAL, **ports, "ANTENNA_PUBLIC_URL": f"http://localhost:{port}"}


def published_anywhere(example: str) -> dict[str, str]:
    """Return what publishes each service wherever a port is free, chosen by the engine at every start."""
    return dict.fromkeys((name for name, _ in PUBLISHED.findall(example)), "0")


def engine_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return what finds and reaches the engine: Compose would take every other variable before that of a `.env`."""
    return {name: value for name, value in environ.items() if name in KEPT or name.startswith("DOCKER_")}


def taken_ports(example: str) -> dict[str, str]:
    """Return another port for each ``PUBLISHED_*_PORT`` whose own is in use on this machine now."""
    taken = [name for name, port in PUBLISHED.findall(example) if not is_free(int(port))]
    return dict(zip(taken, map(str, free_ports(len(taken))), strict=True))


def _changed(line: str, changes: Mapping[str, str]) -> str:
    name = line.lstrip("#").partition("=")[0]
    return f"{name}={changes[name]}\n" if name in changes else line


def _filled(line: str, made: dict[str, str]) -> str:
    if PLACEHOLDER not in line or not re.match(r"#?[A-Z][A-Z0-9_]*=", line):
        return line
    name, _, value = line.partition("=")
    if name == SIGNING_KEY:
        return line.replace(PLACEHOLDER, secrets.token_urlsafe(50))
    service = _service(name.lstrip("#"), value)
    secret = made.setdefault(service, secrets.token_hex(PASSWORD_BYTES))
    return line.replace(PLACEHOLDER, secret)


def _service(name: str, value: str) -> str:
    """Whose secret it is: the host of a URL, else the first word of the variable's name."""
    url = re.search(r"@([a-z]+):\d+", value)
    return url[1].upper() if url else name.partition("_")[0]
