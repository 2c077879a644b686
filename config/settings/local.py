"""A developer's machine and the demo: no service is needed; broker, database, results and cache lie in its files."""

import os

from ami.environment.declaration import of
from ami.governor.settings import GovernorVariables

from .base import *  # noqa: F403
from .brokers import EMBEDDED, transport_options, wrong_broker
from .databases import caches, databases, wrong_database
from .environment import BASE_DIR, refuse, values

SECRET_KEY = values.django_secret_key or "only-for-a-developers-own-machine"
DEBUG = values.django_debug
CELERY_BROKER_URL = values.celery_broker_url or EMBEDDED
_database = values.database_url or f"sqlite:///{BASE_DIR / 'antenna.sqlite3'}"
if wrong := [each for each in (wrong_broker(CELERY_BROKER_URL), wrong_database(_database)) if each]:
    refuse(*wrong)
CELERY_BROKER_TRANSPORT_OPTIONS = transport_options(CELERY_BROKER_URL, values.antenna_keepalive_seconds)
NATS_URL = values.nats_url or "nats://127.0.0.1:4222"
FLOWER_LOGIN_REQUIRED = False
DATABASES = databases(_database, values.antenna_keepalive_seconds)
CACHES = caches(values.redis_url, values.antenna_keepalive_seconds)

# Beside the folder broker: the workers of two checkouts would share a folder below /tmp, and one of them its records.
os.environ.setdefault(of(GovernorVariables, "governor_state_dir").name, str(BASE_DIR / ".antenna" / "governor"))

# A developer's terminal shows what somebody did: ticks at DEBUG, and nothing of the audit log, which has its rows.
LOGGING["filters"] = {"ticks": {"()": "config.logs.TicksAreDebug", "level": LOG_LEVEL}}
LOGGING["handlers"]["stderr"]["filters"] = ["ticks"]
LOGGING["loggers"]["ami.audit"] = {"level": "WARNING"}
