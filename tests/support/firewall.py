"""A network of a test's own whose firewall forgets idle connections, and relays that lead out of it.

Packets of a forgotten connection are dropped without an answer, as by a cloud's NAT. The firewall is the kernel's
connection tracking, which sees keep-alive packets; a relay outside of it would not.
"""

import ctypes
import os
import socket
import subprocess
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from urllib.parse import urlsplit, urlunsplit

import pytest

from tests.support.containers.engine import REQUIRED

CLONE_NEWNET = 0x40000000
TRACKING = "/proc/sys/net/netfilter/nf_conntrack_tcp"


@dataclass
class Relay:
    """Listens inside of the network, and passes each connection on to a server outside of it."""

    listener: socket.socket
    target: tuple[str, int]
    opened: int = 0
    _sockets: list[socket.socket] = field(default_factory=list)

    def start(self) -> None:
        """Accept from now on."""
        threading.Thread(target=self._accept, daemon=True).start()

    def url(self, url: str) -> str:
        """Return the URL of the server with the relay's address."""
        parts = urlsplit(url)
        login, at, _ = parts.netloc.rpartition("@")
        return urlunsplit(parts._replace(netloc=f"{login}{at}127.0.0.1:{self.listener.getsockname()[1]}"))

    def close(self) -> None:
        """Close the listener and every connection."""
        for each in (self.listener, *self._sockets):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                inner, _ = self.listener.accept()
                self.opened += 1
                outer = socket.create_connection(self.target)
                self._sockets += [inner, outer]
                for one, other in ((inner, outer), (outer, inner)):
                    threading.Thread(target=_pump, args=(one, other), daemon=True).start()


def _pump(one: socket.socket, other: socket.socket) -> None:
    with suppress(OSError):
        while data := one.recv(64 * 1024):
            other.sendall(data)
    with suppress(OSError):
        other.shutdown(socket.SHUT_WR)


@dataclass
class Network:
    """A network namespace. Its one thread is in it; all other threads of this process are not."""

    inside: ThreadPoolExecutor
    namespace: int
    relays: list[Relay] = field(default_factory=list)

    @property
    def enter(self) -> list[str]:
        """The beginning of an argument vector whose process is in this network."""
        return ["nsenter", f"--net=/proc/{os.getpid()}/fd/{self.namespace}"]

    def cut(self) -> None:
        """Drop every packet from now on; nobody is told."""
        self.inside.submit(_run, "iptables", "-I", "INPUT", "-j", "DROP").result()

    def relay(self, url: str) -> Relay:
        """Make a relay to the server at this URL."""
        parts = urlsplit(url)
        assert parts.hostname is not None
        assert parts.port is not None
        listener = self.inside.submit(socket.create_server, ("127.0.0.1", 0)).result()
        relay = Relay(listener, (parts.hostname, parts.port))
        self.relays.append(relay)
        relay.start()
        return relay


@contextmanager
def forgetful_network(idle_seconds: int) -> Iterator[Network]:
    """Make a network that forgets a connection without a packet for so long; skip the test where it cannot be made.

    Where an engine is required, which brings ``iptables`` along, it must be possible.
    """
    with ThreadPoolExecutor(1) as inside:
        try:
            namespace = inside.submit(_unshare).result()
            inside.submit(_configure, idle_seconds).result()
        except (OSError, subprocess.CalledProcessError) as error:
            if REQUIRED in os.environ:
                raise
            pytest.skip(f"NO NETWORK NAMESPACE WITH CONNECTION TRACKING HERE (needs root, ip, iptables): {error}")
        network = Network(inside, namespace)
        try:
            yield network
        finally:
            for relay in network.relays:
                relay.close()
            os.close(namespace)


def _unshare() -> int:
    """Move this thread to a network of its own; return a descriptor that keeps it."""
    if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "unshare")
    return os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)


def _configure(idle_seconds: int) -> None:
    """Bring up the loopback, and drop what belongs to no connection that is known."""
    _run("ip", "link", "set", "lo", "up")
    # At the receiver: a sender would be told.
    _run("iptables", "-A", "INPUT", "-m", "conntrack", "--ctstate", "INVALID", "-j", "DROP")
    # In a child: /proc/sys shows the network of the process, not of this thread.
    _run("sh", "-c", f"echo 0 > {TRACKING}_loose && echo {idle_seconds} > {TRACKING}_timeout_established")


def _run(*argv: str) -> Sequence[str]:
    subprocess.run(argv, check=True, capture_output=True)
    return argv
