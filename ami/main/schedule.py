"""The core's entries in beat's schedule."""

from ami.queues.schedule import Scheduled

SCHEDULE = (
    # The greatest age of counts while the queue is not delayed. An expired tick is replaced by the next one.
    Scheduled(task="ami.main.tasks.update_stale_counts", every_seconds=15, expires_seconds=14),
    # Until all are converted; a tick costs three statements then.
    Scheduled(task="ami.main.tasks.update_float_lists", every_seconds=300, expires_seconds=290),
    Scheduled(task="ami.main.tasks.update_login_attempts", every_seconds=3600, expires_seconds=3000),
)
