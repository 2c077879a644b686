"""What is deferred can be imported, and what few processes need is imported by those alone."""

import subprocess
import sys

import pytest

from ami.environment import deferred
from tests.support.place import ROOT

#: Not one of them is needed to show a table of tasks.
FEW = ("httpx", "nats", "PIL", "redis", "psycopg", "drf_spectacular.plumbing", "rest_framework.serializers")

PROGRAM = """
import sys
import django
django.setup()
from django.contrib import admin
from django.core.management import call_command
call_command("queues", "tasks")
found = [name for name in sys.argv[1:] if name in sys.modules]
assert not found, found
from config import urls
found = [name for name in ("prometheus_client", "sentry_sdk") if name in sys.modules]
assert not found, found
from ami.environment import deferred
assert deferred.names()
deferred.load()
assert set(deferred.names()) <= set(sys.modules)
from django.apps import apps
from ami.main.models import Occurrence
assert admin.site.is_registered(Occurrence)
"""


#: What workers, beat, the page and other verbs use.
OTHERS = (
    *FEW,
    "rich",
    "numpy",
    "ami.celery.desired_state.step",
    "ami.governor.bootstep",
    "ami.jobs.services.ingest",
    "ami.jobs.services.audits",
    "ami.main.services.file_times",
    "ami.ml.schemas",
    "ami.queues.diagnostics.queues",
    "ami.queues.letters.found",
    "ami.queues.overview",
    "ami.queues.rescue.sweep",
    "ami.telemetry.sampler",
    "ami.telemetry.snapshots.shape",
    "ami.admission.dispatcher",
    "ami.transports.objectstore.broker.broker_storage",
)
HELP = """
import gc, sys
from config.command_line import main
try:
    main(["manage.py", "queues", "limit", "--help"])
except SystemExit as end:
    assert not end.code
found = [name for name in sys.argv[1:] if name in sys.modules]
assert not found, found
assert gc.isenabled()
from config.celery_app import app
app.Worker
assert "ami.governor.bootstep" in sys.modules and "ami.celery.desired_state.step" in sys.modules
"""


@pytest.mark.processes
def test_verb_of_queues_imports_nothing_of_others():
    environment = {"DJANGO_SETTINGS_MODULE": "config.settings.test", "PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        [sys.executable, "-c", HELP, *OTHERS], capture_output=True, text=True, env=environment, cwd=ROOT, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "--rate" in done.stdout


@pytest.mark.processes
def test_commands_do_not_import_what_few_processes_need():
    environment = {"DJANGO_SETTINGS_MODULE": "config.settings.test", "PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *FEW], capture_output=True, text=True, env=environment, cwd=ROOT, check=False
    )
    assert done.returncode == 0, done.stderr


def test_a_deferred_module_that_is_missing_says_so_when_it_is_used(monkeypatch):
    monkeypatch.setattr(deferred, "_deferred", set())
    module = deferred.deferred("ami.no_such_module")
    with pytest.raises(ModuleNotFoundError, match="no_such_module"):
        _ = module.anything


def test_a_replaced_attribute_is_that_of_the_module(monkeypatch):
    monkeypatch.setattr(deferred, "_deferred", set())
    module = deferred.deferred("ami.environment.names")
    from ami.environment import names

    monkeypatch.setattr(module, "LONG", 5)
    assert names.LONG == 5
