"""The text of `.env` files: an example with new secrets for its placeholders, and the values of one."""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from types import MappingProxyType

from provision.ports import free_ports, is_free

PLACEHOLDER = "change-me"
SIGNING_KEY = "DJANGO_SECRET_KEY"

#: Settings for a browser on the same machine, without an https proxy.
LOCAL = {
    "DJANGO_ALLOWED_HOSTS": "localhost,127.0.0.1,web,proxy",
    "DJANGO_SECURE_SSL_REDIRECT": "0",
    # The compose file's own.
    "ANTENNA_PROXIES": "1",
    # Inside a container, localhost is that container.
    "ANTENNA_SERVICES_URL": "http://web:8000",
}

WEB_PORT = "PUBLISHED_WEB_PORT"
PUBLISHED = re.compile(r"^#?(PUBLISHED_[A-Z_]+_PORT)=(\d+)$", re.M)

KEPT = ("PATH", "HOME", "TMPDIR", "LANG", "TERM")

#: Passwords are hex digits: they are part of URLs and need no percent-encoding.
PASSWORD_BYTES = 24

#: Where a URL's account is not the one that has the variables of its host's name.
ACCOUNTS = {"POSTGRES": "DATABASE"}


#: A value that every reader of such files takes as it stands.
BARE = re.compile(r"[A-Za-z0-9_./:@%+,;=~*-]*")
ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "$": r"\$"})


def with_secrets(
    example: str, changes: Mapping[str, str] = MappingProxyType({}), made: dict[str, str] | None = None
) -> str:
    """Return the example, comments included, with new secrets for its placeholders and with ``changes``.

    A password is in several variables (``RABBITMQ_PASSWORD`` and URLs), so there is one secret per account,
    identified by a URL's host or a variable's prefix. Several examples that are given the same ``made`` share them.
    """
    made = {} if made is None else made
    return "".join(_filled(_changed(line, changes), made) for line in example.splitlines(keepends=True))


def variables(text: str) -> dict[str, str]:
    """Return the variables of a `.env`, without the quotes around their values."""
    found = (line.partition("=") for line in text.splitlines() if re.match(r"[A-Z]", line))
    return {name.strip(): _unquoted(value.strip()) for name, _, value in found}


def names(example: str) -> list[str]:
    """Return every variable of an example, also those that it leaves out with a #."""
    return re.findall(r"^#?([A-Z][A-Z0-9_]*)=", example, re.M)


def local_changes(example: str) -> dict[str, str]:
    """Return the settings for a browser on this machine: free ports, and web's URL for stored links."""
    ports = taken_ports(example)
    port = ports.get(WEB_PORT) or dict(PUBLISHED.findall(example))[WEB_PORT]
    return {**LOCAL, **ports, "ANTENNA_PUBLIC_URL": f"http://localhost:{port}"}


def published_anywhere(example: str) -> dict[str, str]:
    """Return port 0 for each published port: the engine chooses a free one at each start."""
    return dict.fromkeys((name for name, _ in PUBLISHED.findall(example)), "0")


def engine_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables for the engine's client only: Compose prefers any other one to that of a `.env`."""
    return {name: value for name, value in environ.items() if name in KEPT or name.startswith("DOCKER_")}


def taken_ports(example: str) -> dict[str, str]:
    """Return a free port for each ``PUBLISHED_*_PORT`` whose own is in use on this machine."""
    taken = [name for name, port in PUBLISHED.findall(example) if not is_free(int(port))]
    return dict(zip(taken, map(str, free_ports(len(taken))), strict=True))


def _changed(line: str, changes: Mapping[str, str]) -> str:
    name = line.lstrip("#").partition("=")[0]
    return f"{name}={quoted(changes[name])}\n" if name in changes else line


def quoted(value: str) -> str:
    if BARE.fullmatch(value):
        return value
    return f"'{value}'" if "'" not in value else f'"{value.translate(ESCAPES)}"'


def _unquoted(value: str) -> str:
    if value[:1] == "'":
        return value[1:].partition("'")[0]
    if found := re.match(r'"((?:[^"\\]|\\.)*)"', value):
        return re.sub(r"\\(.)", r"\1", found[1])
    return re.split(r"\s+#", value, maxsplit=1)[0]


def _filled(line: str, made: dict[str, str]) -> str:
    if PLACEHOLDER not in line or not re.match(r"#?[A-Z][A-Z0-9_]*=", line):
        return line
    name, _, value = line.partition("=")
    if name == SIGNING_KEY:
        return line.replace(PLACEHOLDER, secrets.token_urlsafe(50))
    account = account_of(name.lstrip("#"), value)
    secret = made.setdefault(account, secrets.token_hex(PASSWORD_BYTES))
    return line.replace(PLACEHOLDER, secret)


def account_of(name: str, value: str = "") -> str:
    """Return the account of a secret: by the host of a URL, else the first word of the variable's name."""
    url = re.search(r"@([a-z]+):\d+", value)
    if url is None:
        return name.partition("_")[0]
    host = url[1].upper()
    return ACCOUNTS.get(host, host)
