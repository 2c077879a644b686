"""The core's entries in beat's schedule."""

from ami.queues.schedule import Scheduled

SCHEDULE = (
    # The greatest age of counts while the queue is not delayed. An expired tick is replaced by the next one.
    Scheduled(task="ami.main.tasks.update_stale_counts", every_seconds=15, expires_seconds=14),
    # Until all are converted; a tick costs three statements then.
    Scheduled(task="ami.main.tasks.update_float_lists", every_seconds=300, expires_seconds=290),
    # The longest time for which a table exceeds what is kept of it. A run without old rows is some twenty statements.
    Scheduled(task="ami.main.tasks.purge_old_rows", every_seconds=600, expires_seconds=590),
)
