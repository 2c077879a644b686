"""Local settings with an empty environment: no service is needed, and every process sees the same of everything."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import forked_python
from tests.support.place import ROOT

from .conftest import copy

pytestmark = pytest.mark.processes

SHOW = """
import json
from django.conf import settings
names = {names!r}
print(json.dumps({{name: getattr(settings, name) for name in names}}, default=str))
"""


def environment(**variables: str) -> dict[str, str]:
    inherited = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR") if name in os.environ}
    return {**inherited, "DJANGO_SETTINGS_MODULE": "config.settings.local", **variables}


@pytest.fixture
def local():
    """Run ``python ARGV`` with local settings and nothing but these variables."""

    def local(*argv: str, **variables: str) -> str:
        done = forked_python.run(["-W", "error", *argv], env=environment(**variables))
        assert done.returncode == 0, done.stderr
        return done.stdout

    return local


@pytest.fixture
def shown(local):
    def shown(*names: str, **variables: str) -> dict:
        return json.loads(local("-c", SHOW.format(names=names), **variables))

    return shown


NAMES = ("CELERY_BROKER_URL", "CELERY_RESULT_BACKEND", "CACHES", "DATABASES", "CELERY_BROKER_TRANSPORT_OPTIONS")


def test_no_library_warns_while_a_new_interpreter_imports_it():
    argv = [sys.executable, "-W", "error", "-c", SHOW.format(names=("CELERY_BROKER_URL",))]
    done = subprocess.run(argv, cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["CELERY_BROKER_URL"].startswith("objectstore+file://")


@pytest.mark.parametrize("empty", [False, True], ids=["not set", "empty"])
def test_without_configuration_everything_lies_in_files_of_this_checkout(shown, empty: bool):
    names = ("CELERY_BROKER_URL", "CELERY_RESULT_BACKEND", "DATABASE_URL", "REDIS_URL")
    settings = shown(*NAMES, **(dict.fromkeys(names, "") if empty else {}))
    assert settings["CELERY_BROKER_URL"] == f"objectstore+{(ROOT / '.antenna' / 'broker').as_uri()}"
    assert settings["CELERY_RESULT_BACKEND"] == "config.result_backend:Backend"
    assert settings["CACHES"]["default"]["BACKEND"].endswith(".DatabaseCache")
    database = settings["DATABASES"]["default"]
    assert (database["ENGINE"], Path(database["NAME"]).parent) == ("config.sqlite3", ROOT)
    assert database["OPTIONS"]["transaction_mode"] == "IMMEDIATE"
    assert settings["CELERY_BROKER_TRANSPORT_OPTIONS"] == {}


def test_results_are_ignored_all_the_same(shown):
    assert shown("CELERY_TASK_IGNORE_RESULT") == {"CELERY_TASK_IGNORE_RESULT": True}


def test_a_redis_takes_results_and_cache(shown):
    settings = shown("CELERY_RESULT_BACKEND", "CACHES", REDIS_URL="redis://127.0.0.1:1/0")
    assert settings["CELERY_RESULT_BACKEND"] == "redis://127.0.0.1:1/0"
    assert settings["CACHES"]["default"]["BACKEND"].endswith(".RedisCache")


def test_rabbitmq_confirms_and_keeps_its_sockets_alive(shown):
    options = shown("CELERY_BROKER_TRANSPORT_OPTIONS", CELERY_BROKER_URL="amqp://guest:guest@127.0.0.1:1//")
    assert options["CELERY_BROKER_TRANSPORT_OPTIONS"]["confirm_publish"] is True
    assert options["CELERY_BROKER_TRANSPORT_OPTIONS"]["socket_settings"]


SET = "from django.core.cache import cache; assert cache.add('beat', 1, 60)"
SEEN = "from django.core.cache import cache; assert not cache.add('beat', 2, 60); print(cache.get('beat'))"


def test_migrate_is_all_that_the_cache_needs_and_processes_share_it(local, migrated: Path, tmp_path: Path):
    copy(migrated, tmp_path / "x.sqlite3")
    database = {"DATABASE_URL": f"sqlite:///{tmp_path / 'x.sqlite3'}"}
    setup = "import django; django.setup(); "
    local("manage.py", "migrate", "--verbosity=0", **database)
    local("-c", setup + SET, **database)
    assert local("-c", setup + SEEN, **database) == "1\n"
