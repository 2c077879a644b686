"""``python -m benchmarks.publishing``: publishing with confirmations, and ``publish_many`` over each broker.

Run it with RabbitMQ and Redis (``python -m provision run --private --need redis,rabbitmq -- ...``).
"""

import os
import sys

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings.test")

from benchmarks import frame
from benchmarks.publishing import confirms, many

PARTS = {"confirms": confirms.figures, "many": many.figures}

if __name__ == "__main__":
    sys.exit(frame.main("publishing", __doc__, PARTS))
