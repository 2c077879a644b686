"""The application for ``celery -A`` in a worker of this benchmark."""

import json
import os

from benchmarks.brokers.application import VARIABLE, Settings, make

app = make(Settings(**json.loads(os.environ[VARIABLE])))
