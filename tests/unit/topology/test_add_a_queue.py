"""A queue and a task, added in a copy of the checkout as CONTRIBUTING.md says, fail no fast test there."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import forked_python, migrated_database, services
from tests.support.checkout import copy_checkout
from tests.support.place import ROOT
from tests.support.soak import VARIABLE, soak

pytestmark = [pytest.mark.processes, pytest.mark.timeout(900)]

ROW = """    Workload(
        queue="antenna-reports",
        key="REPORTS",
        service="celeryworker_reports",
        promise="a report is ready within a minute",
        tasks=("ami.exports.tasks.write_report",),
        concurrency=1,
        max_tasks_per_child=100,
        max_memory_per_child_kib=512 * MIB,
        soft_time_limit_seconds=240,
        hard_time_limit_seconds=300,
        stop_grace_period_seconds=330,
        wait_target_seconds=60,{enabled_by}
    ),
"""
TASK = '''

@shared_task(name="ami.exports.tasks.write_report", triggered_by="beat", **RETRIES)
def write_report() -> None:
    """Write the report of what was exported."""
    reports.write()
'''
SERVICE = '''"""Reports of what was exported."""


def write() -> None:
    """Write one."""
'''
ENTRY = 'Scheduled(task="ami.exports.tasks.write_report", every_seconds=3600, expires_seconds=600),'

#: The fast tests that name queues or read the table, for the short form; the long form is `make test-fast`.
SHORT = (
    "tests/unit/topology",
    "tests/unit/compose",
    "tests/unit/docs",
    "tests/unit/queues",
    "tests/unit/governor/test_settings.py",
    *(f"tests/unit/config/test_{name}.py" for name in ("production", "refusals", "secrets", "logs")),
    "tests/unit/telemetry/test_task_log.py",
)
FAST = soak(("-m", "pytest", "--part", "fast", "-q", *SHORT), ("-m", "tests", "fast"))
ENVIRONMENT = {
    name: value
    for name, value in os.environ.items()
    if name not in services.URLS and name != VARIABLE and not name.startswith("PYTEST_")
}


def insert(path: Path, before: str, text: str) -> None:
    """Insert ``text`` before the first line that begins with ``before``."""
    head, found, tail = path.read_text().partition(f"\n{before}")
    assert found, f"{path} has no line {before!r}"
    path.write_text(f"{head}\n{text}{before}{tail}")


def add_task(checkout: Path) -> None:
    """Steps 1, 5 and 6 of "Add a task"; the others are about what the task does."""
    exports = checkout / "ami/exports"
    (exports / "services/reports.py").write_text(SERVICE)
    tasks = exports / "tasks.py"
    insert(tasks, "from ami.exports.services import", "from ami.exports.services import reports\n")
    tasks.write_text(tasks.read_text() + TASK)
    schedule = exports / "schedule.py"
    schedule.write_text(schedule.read_text().replace("SCHEDULE = (", f"SCHEDULE = ({ENTRY} "))


def add_queue(checkout: Path, enabled_by: str) -> None:
    """Steps 1 to 3 of "Add a queue"."""
    switch = f'\n        enabled_by="{enabled_by}",' if enabled_by else ""
    insert(checkout / "ami/topology/table.py", "    Workload(", ROW.format(enabled_by=switch))
    line = "| `antenna-reports` | reports | a report is ready within a minute |\n"
    insert(checkout / "README.md", "| `antenna-ingest` |", line)
    for command in recipe("render"):
        done = forked_python.run(command, cwd=checkout, env=ENVIRONMENT)
        assert done.returncode == 0, done.stdout + done.stderr


def recipe(target: str) -> list[list[str]]:
    """The arguments of Python in each command of a target of the Makefile."""
    (lines,) = re.findall(rf"^{target}:.*\n((?:\t.+\n)+)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    commands = [shlex.split(line) for line in lines.splitlines()]
    assert {command[0] for command in commands} == {"$(V)"}, commands
    return [command[1:] for command in commands]


@pytest.mark.parametrize("enabled_by", soak(("",), ("", "ANTENNA_REPORTS_ENABLED")), ids=["on"] + soak([], ["off"]))
def test_added_queue_fails_no_fast_test(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, enabled_by: str):
    # It adds no migration: its database begins with the one that is migrated already.
    shared = os.environ.get(migrated_database.VARIABLE, str(tmp_path_factory.getbasetemp().parent))
    checkout = copy_checkout(tmp_path / "checkout")
    add_task(checkout)
    add_queue(checkout, enabled_by)
    done = subprocess.run(
        [sys.executable, *FAST],
        cwd=checkout,
        env={**ENVIRONMENT, migrated_database.VARIABLE: shared},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout[-6000:]}\n{done.stderr[-2000:]}"


def test_added_task_is_claimed_and_checked(tmp_path: Path):
    checkout = copy_checkout(tmp_path / "checkout")
    add_task(checkout)
    add_queue(checkout, "")
    environment = {**ENVIRONMENT, "DJANGO_SETTINGS_MODULE": "config.settings.test"}
    for argv in (["manage.py", "check", "--fail-level", "WARNING"], ["-m", "config.rendered", "--check"]):
        done = forked_python.run(argv, cwd=checkout, env=environment)
        assert done.returncode == 0, done.stdout + done.stderr
    done = forked_python.run(["manage.py", "queues", "tasks"], cwd=checkout, env=environment)
    (line,) = [line for line in done.stdout.splitlines() if "write_report" in line]
    assert "antenna-reports" in line
