"""Keep-alive packets: what keeps idle connections open through a firewall that forgets them (incident 5)."""

import socket
from typing import Any

from ami.environment.declaration import of
from config.schema.tasks import Tasks

DEFAULT_SECONDS: int = of(Tasks, "antenna_keepalive_seconds").default

#: A dead peer is noticed after so many packets without an answer, a sixth of the idle time apart: at 60 s after 150 s.
PACKETS, PART = 9, 6

#: macOS has the first under another name.
_IDLE = getattr(socket, "TCP_KEEPIDLE", None) or getattr(socket, "TCP_KEEPALIVE", None)


def tcp_options(seconds: int) -> dict[int, int]:
    """Return the socket options of a connection that sends the first packet after so many idle seconds."""
    return {_IDLE: seconds, socket.TCP_KEEPINTVL: interval(seconds), socket.TCP_KEEPCNT: PACKETS} if _IDLE else {}


def libpq_options(seconds: int) -> dict[str, Any]:
    """Return the same for PostgreSQL's library, and as long for what was sent and is not acknowledged.

    Source: https://www.postgresql.org/docs/current/libpq-connect.html.
    """
    given_up_ms = 1000 * (seconds + PACKETS * interval(seconds))
    options = {"keepalives": 1, "keepalives_idle": seconds, "keepalives_interval": interval(seconds)}
    return {**options, "keepalives_count": PACKETS, "tcp_user_timeout": given_up_ms}


def interval(seconds: int) -> int:
    """Return the seconds between two packets without an answer."""
    return max(1, seconds // PART)
