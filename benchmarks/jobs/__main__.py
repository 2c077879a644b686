"""``python -m benchmarks.jobs``: kept connections, collect, dispatch and audits, each beside its reference.

Run it with PostgreSQL, RabbitMQ and NATS (``python -m provision run --durable --need postgres,rabbitmq,nats -- ...``).
"""

import os
import sys

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings.test")

import django

django.setup()

from benchmarks import frame  # noqa: E402
from benchmarks.jobs import audits, collect, connections, dispatch  # noqa: E402

PARTS = {
    "connections": connections.figures,
    "collect": collect.figures,
    "dispatch": dispatch.figures,
    "audits": audits.figures,
}

if __name__ == "__main__":
    sys.exit(frame.main("jobs", __doc__, PARTS))
