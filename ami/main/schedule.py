"""The core's entries in beat's schedule."""

from ami.queues.schedule import Scheduled

SCHEDULE = (
    # The longest time for which a table exceeds what is kept of it. A run without old rows is some twenty statements.
    Scheduled(task="ami.main.tasks.purge_old_rows", every_seconds=600, expires_seconds=590),
)
