"""What each test file took, in seconds and in seconds of a CPU: the slowest on the screen, all below ``.test-logs``."""

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.place import ROOT

LOGS = ROOT / ".test-logs"
SHOWN = 25


class CpuSeconds:
    """Writes into each report what this process, and the children it waited for, computed since the one before."""

    def pytest_collection_finish(self) -> None:
        self._before = sum(os.times()[:4])

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Iterator[Any]:
        report, now = (yield), sum(os.times()[:4])
        report.cpu_seconds, self._before = now - self._before, now
        return report


class FileSeconds:
    """Adds the reports up by file."""

    def __init__(self, part: str) -> None:
        self._log: Path = LOGS / f"files-{part}"
        self._seconds: Counter[str] = Counter()
        self._cpu_seconds: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: Any) -> None:
        file = report.nodeid.partition("::")[0]
        self._seconds[file] += report.duration
        self._cpu_seconds[file] += getattr(report, "cpu_seconds", 0)

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        lines = [f"{took:8.2f} {self._cpu_seconds[file]:8.2f}  {file}" for file, took in self._seconds.most_common()]
        LOGS.mkdir(exist_ok=True)
        self._log.write_text("\n".join(lines) + "\n")
        terminalreporter.section(f"seconds and CPU-seconds of the slowest files; all: {self._log.relative_to(ROOT)}")
        terminalreporter.write_line("\n".join(lines[:SHOWN]))


def register(config: pytest.Config, part: str) -> None:
    """Measure a run of ``part``; with xdist its processes measure, and the first one adds up."""
    config.pluginmanager.register(CpuSeconds())
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(FileSeconds(part))
