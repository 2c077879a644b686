"""A private RabbitMQ with its management plugin: its own node, cookie, ports and epmd, loopback only.

RabbitMQ writes the registry of its quorum queues to disk half a second late (seen on 3.10.8): if it is killed sooner
after a queue was first declared, that queue is unusable after the restart (541, timeouts of 60 s).
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from pathlib import Path

from provision import urls
from provision.kind import Account, Container, Kind, LaunchSpec
from provision.ports import free_ports

USER = "antenna"
CONFIGURATION = """\
listeners.tcp.1 = 127.0.0.1:{amqp}
management.tcp.ip = 127.0.0.1
management.tcp.port = {management}
default_user = {user}
default_pass = {password}
vm_memory_high_watermark.relative = 0.4
disk_free_limit.absolute = 50MB
log.console = true
log.console.level = info
log.file = false
"""


def environment(folder: Path, dist: int, epmd: int) -> dict[str, str]:
    """Every path and port that the server would otherwise take from the machine's own installation."""
    return {
        "HOME": str(folder),  # with the Erlang cookie
        "ERL_EPMD_PORT": str(epmd),  # our own epmd: the machine's may be missing, or another user's
        "ERL_EPMD_ADDRESS": "127.0.0.1",
        "RABBITMQ_NODENAME": f"antenna-{folder.name.rpartition('-')[2]}@localhost",
        "RABBITMQ_DIST_PORT": str(dist),
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
        "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq.conf"),
        "RABBITMQ_CONFIG_FILES": str(folder / "conf.d"),
        "RABBITMQ_ADVANCED_CONFIG_FILE": str(folder / "advanced.config"),
        "RABBITMQ_CONF_ENV_FILE": str(folder / "rabbitmq-env.conf"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "enabled_plugins"),
        "RABBITMQ_GENERATED_CONFIG_DIR": str(folder / "generated"),
        "RABBITMQ_MNESIA_BASE": str(folder / "data"),
        "RABBITMQ_LOG_BASE": str(folder / "logs"),
        "RABBITMQ_PID_FILE": str(folder / "pid"),
        "RABBITMQ_LOGS": "-",
        # Otherwise the start script keeps a shell as the server's parent, and signals would reach the shell only.
        "RUNNING_UNDER_SYSTEMD": "true",
    }


def prepare(binary: Path, folder: Path, account: Account | None) -> LaunchSpec:
    """Write the configuration, the plugin list and the cookie; choose four ports and a password."""
    amqp, management, dist, epmd = free_ports(4)
    password = secrets.token_urlsafe(18)
    for name in ("conf.d", "generated", "data", "logs"):
        (folder / name).mkdir()
    (folder / "rabbitmq-env.conf").touch()
    (folder / "advanced.config").write_text("[].\n")
    (folder / "enabled_plugins").write_text("[rabbitmq_management].\n")
    configuration = CONFIGURATION.format(amqp=amqp, management=management, user=USER, password=password)
    (folder / "rabbitmq.conf").write_text(configuration)
    cookie = folder / ".erlang.cookie"
    cookie.write_text(secrets.token_hex(16))
    cookie.chmod(0o400)
    return LaunchSpec(
        argv=(str(binary),),
        env=environment(folder, dist, epmd),
        url=f"amqp://{USER}:{password}@127.0.0.1:{amqp}//",
        management_url=f"http://{USER}:{password}@127.0.0.1:{management}",
        port=amqp,
        folder=folder,
        account=account,
    )


def beneath_wrapper(path: Path) -> Path:
    """The script that Debian's `rabbitmq-server` wraps: the wrapper drops our settings when it switches users."""
    real = path.resolve()
    beside = real.with_name("rabbitmq-server")
    return beside if real.name == "rabbitmq-script-wrapper" and beside.exists() else path


def container_urls(published: Mapping[int, int], password: str) -> tuple[str, str | None]:
    login = f"{USER}:{password}@127.0.0.1"
    return f"amqp://{login}:{published[5672]}//", f"http://{login}:{published[15672]}"


KIND = Kind(
    name="rabbitmq",
    variable="CELERY_BROKER_URL",
    default_url="amqp://guest:guest@127.0.0.1:5672//",
    executable="rabbitmq-server",
    package="rabbitmq-server",
    folders=("/usr/lib/rabbitmq/bin", "/opt/rabbitmq/sbin"),
    accounts=("rabbitmq",),
    probe=urls.rabbitmq,
    prepare=prepare,
    executable_of=beneath_wrapper,
    container=Container(
        ports=(5672, 15672),
        urls=container_urls,
        environment=lambda password: {"RABBITMQ_DEFAULT_USER": USER, "RABBITMQ_DEFAULT_PASS": password},
    ),
)
