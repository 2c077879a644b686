"""The periodic tasks of the app `ml`."""

from ami.queues.schedule import Scheduled

SCHEDULE = [
    Scheduled(task="ami.ml.tasks.check_processing_services_online", every_seconds=300, expires_seconds=240),
]
