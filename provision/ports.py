"""Free loopback ports for servers that are killed and restarted on the same ports."""

from __future__ import annotations

import random
import socket
import threading

# Below the kernel's range for outgoing connections (32768 and up on Linux, 49152 elsewhere): a client that reconnects
# to a stopped server's port could otherwise get that same port as its own, and occupy it.
FIRST, LAST = 20000, 32000
_given: set[int] = set()
_lock = threading.Lock()


def is_free(port: int) -> bool:
    """Whether no process listens on a loopback port."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def free_ports(count: int) -> list[int]:
    """`count` free ports, never the same twice in this process; from the kernel if the range is full."""
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
