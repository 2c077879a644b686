"""``python -m benchmarks.start``: the processor time and memory of commands, beside ``check`` of an empty project.

The reference is ``manage.py check`` of a project without code of its own whose third-party applications are those of
this one. The commands take turns; each figure is the median of the rounds, after one that does not count.
``python -X importtime manage.py queues tasks`` shows which imports a figure is made of.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks import frame
from benchmarks.frame import Figure

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


def figures(quick: bool) -> Iterator[Figure]:
    """Let the commands take turns; yield the processor seconds and the peak memory of each."""
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
        for number in range(4 if quick else 10):
            for name, contender in contenders.items():
                measured = run(*contender)
                if number:
                    found[name].append(measured)
    for column, unit in enumerate(("CPU s", "MiB")):
        medians = {name: statistics.median(each[column] for each in values) for name, values in found.items()}
        reference = medians.pop(REFERENCE)
        for command, value in medians.items():
            target = TARGETS.get(command) if column == 0 else None
            yield Figure(command, unit, value, REFERENCE, reference, value / reference, at_most=target)


if __name__ == "__main__":
    sys.exit(frame.main("start", __doc__, {"start": figures}))
