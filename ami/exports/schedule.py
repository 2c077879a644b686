"""The exports' entries in beat's schedule."""

from ami.queues.schedule import Scheduled

SCHEDULE = (Scheduled(task="ami.exports.tasks.run_scheduled_exports", every_seconds=60, expires_seconds=50),)
