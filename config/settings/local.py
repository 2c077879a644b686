"""A developer's machine and the demo: no service is needed; broker, database, results and cache lie in its files."""

from .base import *  # noqa: F403
from .brokers import EMBEDDED, refuse_malformed, transport_options
from .databases import caches, databases
from .environment import BASE_DIR, env, on_or_off

SECRET_KEY = env.str("DJANGO_SECRET_KEY", default="only-for-a-developers-own-machine")
DEBUG = on_or_off("DJANGO_DEBUG", default=True)
CELERY_BROKER_URL = env.str("CELERY_BROKER_URL", default="") or EMBEDDED
refuse_malformed(CELERY_BROKER_URL)
CELERY_BROKER_TRANSPORT_OPTIONS = transport_options(CELERY_BROKER_URL)
NATS_URL = env.str("NATS_URL", default="nats://127.0.0.1:4222")
FLOWER_URL = env.str("FLOWER_URL", default="http://127.0.0.1:5555")
FLOWER_LOGIN_REQUIRED = False
DATABASES = databases(env.str("DATABASE_URL", default="") or f"sqlite:///{BASE_DIR / 'antenna.sqlite3'}")
CACHES = caches(env.str("REDIS_URL", default=""))
