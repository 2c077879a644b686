"""A private Redis: loopback only, with an append-only file, so that its data survive a kill."""

from __future__ import annotations

from pathlib import Path

from provision import urls
from provision.kind import Account, Container, Kind, LaunchSpec
from provision.ports import free_ports

CONFIGURATION = """\
bind 127.0.0.1
port {port}
dir {data}
daemonize no
save ""
appendonly yes
appendfsync everysec
"""


def prepare(binary: Path, folder: Path, account: Account | None) -> LaunchSpec:
    """Write the configuration; choose one port."""
    [port] = free_ports(1)
    data = folder / "data"
    data.mkdir()
    configuration = folder / "redis.conf"
    configuration.write_text(CONFIGURATION.format(port=port, data=data))
    return LaunchSpec(
        argv=(str(binary), str(configuration)),
        url=f"redis://127.0.0.1:{port}/0",
        port=port,
        folder=folder,
        account=account,
    )


KIND = Kind(
    name="redis",
    variable="REDIS_URL",
    default_url="redis://127.0.0.1:6379/0",
    executable="redis-server",
    package="redis-server",
    accounts=("redis",),
    probe=urls.redis_server,
    prepare=prepare,
    container=Container(
        ports=(6379,),
        urls=lambda published, _: (f"redis://127.0.0.1:{published[6379]}/0", None),
        command=("redis-server",),
    ),
)
