"""In production each process demands what it uses, and names all that is missing at once."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.place import ROOT

from .conftest import GOOD, Run

pytestmark = pytest.mark.processes

#: What each process cannot do without.
NEEDED = {
    "web": {"DJANGO_SECRET_KEY", "DJANGO_ALLOWED_HOSTS", "CELERY_BROKER_URL", "REDIS_URL", "DATABASE_URL", "NATS_URL"},
    "worker": {"DJANGO_SECRET_KEY", "CELERY_BROKER_URL", "REDIS_URL", "DATABASE_URL", "NATS_URL"},
    "beat": {"CELERY_BROKER_URL", "DATABASE_URL"},
    "flower": {"CELERY_BROKER_URL"},
    "setup": {"CELERY_BROKER_URL", "DATABASE_URL"},
}
NOTHING = dict.fromkeys(set(GOOD) - {"DJANGO_SETTINGS_MODULE", "ANTENNA_PROXIES"}, "")
CHECK = "import django; django.setup(); from django.core.management import call_command; call_command('check')"


@pytest.mark.parametrize("process", NEEDED)
def test_process_demands_what_it_uses_in_one_sentence(run: Run, process: str):
    done = run("-c", CHECK, **NOTHING, ANTENNA_PROCESS=process)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert {name for name in NOTHING if name in done.stderr} == NEEDED[process]


@pytest.mark.parametrize("process", NEEDED)
def test_process_starts_with_what_it_uses(run: Run, process: str):
    needed = {name: GOOD[name] for name in NEEDED[process]}
    proxies = {} if process == "web" else {"ANTENNA_PROXIES": ""}
    done = run("-c", CHECK, **{**NOTHING, **needed, **proxies}, ANTENNA_PROCESS=process)
    assert done.returncode == 0, done.stderr


def test_unknown_process_demands_everything(run: Run):
    done = run("-c", CHECK, **NOTHING)
    assert {name for name in NOTHING if name in done.stderr} == set(NOTHING)


@pytest.mark.parametrize("module", ["local", "test"])
def test_env_file_of_a_deployment_is_not_read(tmp_path: Path, module: str):
    """It has containers' host names, and secrets that no local process needs."""
    shutil.copytree(ROOT / "config", tmp_path / "config")
    (tmp_path / "ami").symlink_to(ROOT / "ami")
    (tmp_path / ".env").write_text("DATABASE_URL=postgres://a:b@postgres/a\nCELERY_BROKER_URL=amqp://a:b@rabbitmq/a\n")
    show = (
        "import config; from django.conf import settings; print(config, settings.DATABASES, settings.CELERY_BROKER_URL)"
    )
    settings = {"PATH": os.environ["PATH"], "DJANGO_SETTINGS_MODULE": f"config.settings.{module}"}
    done = subprocess.run(
        [sys.executable, "-c", show], cwd=tmp_path, env=settings, capture_output=True, text=True, timeout=60, check=True
    )
    assert str(tmp_path / "config") in done.stdout
    assert "rabbitmq" not in done.stdout
    assert "postgres" not in done.stdout
