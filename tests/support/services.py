"""The services of a test run, as ``python -m provision run`` tells where they are."""

import os

URLS = ("CELERY_BROKER_URL", "RABBITMQ_MANAGEMENT_URL", "REDIS_URL", "DATABASE_URL", "NATS_URL")


def missing() -> list[str]:
    """Return which services' URLs the environment lacks."""
    return [name for name in URLS if not os.environ.get(name)]
