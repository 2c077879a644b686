"""``python -m benchmarks.start``: the processor time and memory of commands, beside ``check`` of an empty project.

The reference is ``manage.py check`` of a project without code of its own whose third-party applications are those of
this one. The commands take turns; each figure is the median of the rounds, after one that does not count.
``python -X importtime manage.py queues tasks`` shows which imports a figure is made of.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TARGETS = {"queues tasks": 1.5}
REFERENCE = "check of an empty project"
COMMANDS = ("queues tasks", "queues --help", "check", "migrate --plan", "tokens --help")

EMPTY = """
import django
from django.conf import settings
from django.core.management import call_command

settings.configure(
    SECRET_KEY="not secret",
    INSTALLED_APPS={apps!r},
    DATABASES={{"default": {{"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}}}},
    MIDDLEWARE=["django.contrib.sessions.middleware.SessionMiddleware",
                "django.contrib.auth.middleware.AuthenticationMiddleware",
                "django.contrib.messages.middleware.MessageMiddleware"],
    TEMPLATES=[{{"BACKEND": "django.template.backends.django.DjangoTemplates", "APP_DIRS": True, "OPTIONS": {{
        "context_processors": ["django.template.context_processors.request",
                               "django.contrib.auth.context_processors.auth",
                               "django.contrib.messages.context_processors.messages"]}}}}],
    ROOT_URLCONF="urls",
    DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
    USE_TZ=True,
)
django.setup()
call_command("check")
"""
URLS = """
from django.contrib import admin
from django.urls import path

urlpatterns = [path("admin/", admin.site.urls)]
"""


@dataclass(frozen=True)
class Measured:
    """Processor seconds and peak memory of one command, and the ratio of its seconds to the reference's."""

    command: str
    seconds: float
    peak_mib: float
    ratio: float

    @property
    def target(self) -> float | None:
        return TARGETS.get(self.command)


def run(argv: list[str], folder: Path, environment: dict[str, str]) -> tuple[float, float]:
    """Run a command; return its processor seconds and its peak memory in MiB. Raises RuntimeError if it fails."""
    process = subprocess.Popen(argv, cwd=folder, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    assert process.stderr is not None
    errors = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{argv}: {errors.decode()[-2000:]}")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def third_party() -> list[str]:
    """Return the installed applications that are not this project's."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings.test")
    from django.conf import settings

    own = {"ami", "config", "demo"}
    apps = [name for name in settings.INSTALLED_APPS if name.partition(".")[0] not in own]
    replaced = {"django.contrib.admin.apps.SimpleAdminConfig": "django.contrib.admin"}
    found = [replaced.get(name, name) for name in apps]
    return found if "django.contrib.admin" in found else ["django.contrib.admin", *found]


def measure(rounds: int) -> list[Measured]:
    """Let the commands take turns."""
    own = {**os.environ, "DJANGO_SETTINGS_MODULE": "config.settings.test", "PYTHONPATH": str(ROOT)}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        # As installed: this project's modules are compiled, as the libraries' are.
        own["PYTHONPYCACHEPREFIX"] = str(folder / "compiled")
        own.pop("PYTHONDONTWRITEBYTECODE", None)
        (folder / "empty.py").write_text(EMPTY.format(apps=third_party()))
        (folder / "urls.py").write_text(URLS)
        bare = {key: value for key, value in own.items() if key not in ("DJANGO_SETTINGS_MODULE", "PYTHONPATH")}
        contenders = {REFERENCE: ([sys.executable, "empty.py"], folder, bare)}
        for command in COMMANDS:
            contenders[command] = ([sys.executable, str(ROOT / "manage.py"), *command.split()], ROOT, own)
        found: dict[str, list[tuple[float, float]]] = {name: [] for name in contenders}
        for number in range(rounds + 1):
            for name, contender in contenders.items():
                measured = run(*contender)
                if number:
                    found[name].append(measured)
    seconds = {name: statistics.median(each[0] for each in values) for name, values in found.items()}
    return [
        Measured(name, seconds[name], max(each[1] for each in values), seconds[name] / seconds[REFERENCE])
        for name, values in found.items()
    ]


def print_table(rows: list[Measured]) -> None:
    """Print each command with the reference and its target."""
    from rich.console import Console
    from rich.table import Table

    table = Table("command", "processor seconds", "peak MiB", "of the reference", "at most")
    for row in rows:
        target = "" if row.target is None else f"{row.target:g}"
        table.add_row(row.command, f"{row.seconds:.2f}", f"{row.peak_mib:.0f}", f"{row.ratio:.2f}", target)
    Console(width=110).print(table)


def main() -> int:
    """Measure, print the table, and return 1 if a target was missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="three rounds instead of nine")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    rows = measure(3 if options.quick else 9)
    if options.json:
        print(json.dumps([{**asdict(row), "target": row.target} for row in rows], indent=2))
    else:
        print_table(rows)
    return int(any(row.target is not None and row.ratio > row.target for row in rows))


if __name__ == "__main__":
    raise SystemExit(main())
