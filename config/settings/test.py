"""The test suite: services from the environment, files in a folder of the run's own."""

import os
import tempfile
from pathlib import Path

from ami.environment.declaration import of
from config.schema.tasks import Tasks

from .base import *  # noqa: F403
from .base import PRIVATE_FILES, REDIS_URL, STORAGES
from .brokers import transport_options
from .databases import caches, databases
from .environment import values

SECRET_KEY = "only-for-tests"  # noqa: S105
CELERY_BROKER_URL = values.celery_broker_url or "amqp://guest:guest@127.0.0.1:5672//"
CELERY_BROKER_TRANSPORT_OPTIONS = transport_options(CELERY_BROKER_URL, values.antenna_keepalive_seconds)
NATS_URL = values.nats_url or "nats://127.0.0.1:4222"
FLOWER_URL = "http://flower.example:5555"
_folder = Path(values.antenna_test_folder or tempfile.mkdtemp(prefix="antenna-test-"))
DATABASES = databases(values.database_url or f"sqlite:///{_folder / 'test.sqlite3'}", values.antenna_keepalive_seconds)
if DATABASES["default"]["ENGINE"].endswith("sqlite3"):
    # In a file, so that threads and worker processes share it.
    DATABASES["default"]["TEST"] = {"NAME": str(_folder / "pytest.sqlite3")}
CACHES = caches(REDIS_URL, values.antenna_keepalive_seconds)
if not REDIS_URL:
    # Most tests have no database. Those about results and cache there ask for it (tests/unit/config).
    CACHES = {"default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}}
    CELERY_RESULT_BACKEND = values.celery_result_backend or "disabled"
MEDIA_ROOT = str(_folder / "media")
STATIC_ROOT = str(_folder / "static")
for _name in (MEDIA_ROOT, STATIC_ROOT):
    Path(_name).mkdir(parents=True, exist_ok=True)
STORAGES = {
    **STORAGES,
    "results": {
        "BACKEND": "django.core.files.storage.FileSystemStorage",
        "OPTIONS": {**PRIVATE_FILES, "location": str(_folder / "results")},
    },
    "letters": {
        "BACKEND": "django.core.files.storage.FileSystemStorage",
        "OPTIONS": {**PRIVATE_FILES, "location": str(_folder / "letters"), "allow_overwrite": True},
    },
}
#: Tests about letters switch it on; to the others a letter is a message in its queue, and most have no database.
ANTENNA_COLLECT_LETTERS = of(Tasks, "antenna_collect_letters").name in os.environ and values.antenna_collect_letters
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
ALLOWED_HOSTS = ["*"]
