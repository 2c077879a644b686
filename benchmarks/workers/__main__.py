"""``python -m benchmarks.workers``: split queues beside one queue, and a worker with the governor beside one without.

Run it with RabbitMQ (``python -m provision run --private -- ...``).
"""

import sys

from benchmarks import frame
from benchmarks.workers import governor, isolation

PARTS = {"isolation": isolation.figures, "governor": governor.figures}

if __name__ == "__main__":
    sys.exit(frame.main("workers", __doc__, PARTS))
