"""Free ports on the loopback interface for servers that will be killed and started again on the same ones."""

from __future__ import annotations

import random
import socket
import threading

# Below the range from which the kernel serves outgoing connections (32768 and up on Linux, 49152 elsewhere):
# a client that keeps reconnecting to a port whose server is down can otherwise be given that very port as its
# own, and so occupy it.
FIRST, LAST = 20000, 32000
_given: set[int] = set()
_lock = threading.Lock()


def is_free(port: int) -> bool:
    """Whether nothing listens on a loopback port."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def free_ports(count: int) -> list[int]:
    """`count` ports on which nothing listens, none given twice by this process; from the kernel if the range
    is full.
    """
    found: list[int] = []
    with _lock:
        for port in random.sample(range(FIRST, LAST), k=500):
            if len(found) == count:
                break
            if port not in _given and is_free(port):
                found.append(port)
        while len(found) < count:
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", 0))
                found.append(probe.getsockname()[1])
        _given.update(found)
    return found
