"""The Celery application that `celery -A config` finds."""

import os

from ami import transports
from ami.celery import bootsteps
from ami.celery.app import AntennaCelery
from ami.governor import bootstep as governor
from ami.telemetry import pulse
from config import flower  # noqa: F401 - listens to a signal

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings.local")

transports.register()  # Before the first connection: kombu has no entry point for transports.
app = AntennaCelery("antenna")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()
bootsteps.install(app)
governor.install(app)
pulse.install(app)
