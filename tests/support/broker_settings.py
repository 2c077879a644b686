"""Settings of a place whose broker is not RabbitMQ: its transport options come from the environment, as JSON."""

import json
import os

from config.settings.test import *  # noqa: F403

CELERY_BROKER_TRANSPORT_OPTIONS = json.loads(os.environ["TEST_TRANSPORT_OPTIONS"])
