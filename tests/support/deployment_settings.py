"""A deployment's settings module: its routes, as JSON in the variable that follows, replace those that it imports."""

import json
import os

from config.settings.test import *  # noqa: F403

VARIABLE = "DEPLOYMENT_TASK_ROUTES"

CELERY_TASK_ROUTES = json.loads(os.environ[VARIABLE])
