"""The Celery application that `celery -A config` finds."""

from ami import governor, transports
from ami.celery import bootsteps, connection_names, task_progress
from ami.celery.app import AntennaCelery
from ami.celery.failures import spool
from ami.environment.deferred import deferred
from ami.telemetry import pulse
from config import flower, settings_module, shared_imports, start_checks, task_routes  # noqa: F401 - three listen to signals

settings_module.choose()

desired_state = deferred("ami.celery.desired_state.step")

transports.register()  # Before the first connection: kombu has no entry point for transports.
app = AntennaCelery("antenna")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.loader.override_backends = dict.fromkeys(("redis", "rediss"), "config.redis_results:Backend")
app.on_configure.connect(task_routes.apply)
app.autodiscover_tasks()
bootsteps.install(app)
app.worker_parts = (governor.install, lambda app: desired_state.install(app))
connection_names.install(app)
spool.install(app)
task_progress.install(app)
pulse.install(app)
