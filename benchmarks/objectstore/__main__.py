"""``python -m benchmarks.objectstore``: the queue beside the disk's floor, opening it, and the requests to a bucket."""

import sys

from benchmarks import frame
from benchmarks.objectstore import opening, queue, requests

PARTS = {"queue": queue.figures, "opening": opening.figures, "requests": requests.figures}

if __name__ == "__main__":
    sys.exit(frame.main("objectstore", __doc__, PARTS))
