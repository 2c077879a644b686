"""Processor time of the web processes, and of the services that they ask."""

import time
from contextlib import suppress
from pathlib import Path

from django.db import connection

from benchmarks.overhead import TICKS
from provision.guard import descendants
from tests.support.brokers import management
from tests.support.web_server import Web


class Processors:
    """Reads what each has used, its ended children included."""

    def __init__(self, web: Web) -> None:
        with connection.cursor() as cursor:
            cursor.execute("SHOW data_directory")
            lines = (Path(cursor.fetchone()[0]) / "postmaster.pid").read_text().splitlines()
        rabbitmq = int(management("GET", "nodes").json()[0]["os_pid"])
        self._roots = {"web": web.process.popen.pid, "PostgreSQL": int(lines[0]), "RabbitMQ": rabbitmq}

    def percent_of_a_core(self, seconds: float) -> dict[str, float]:
        """Wait so long; return what each has used of a core."""
        before, began = self._used(), time.perf_counter()
        time.sleep(seconds)
        took, after = time.perf_counter() - began, self._used()
        return {name: 100 * (after[name] - before[name]) / took for name in after}

    def _used(self) -> dict[str, float]:
        return {name: sum(map(_seconds, (pid, *descendants(pid)))) for name, pid in self._roots.items()}


def _seconds(pid: int) -> float:
    with suppress(OSError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return sum(map(int, fields[11:15])) / TICKS
    return 0.0
