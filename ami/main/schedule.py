"""What beat schedules for the core."""

from ami.queues.schedule import Scheduled

SCHEDULE = (
    # Counts are at most this old when nothing holds the queue up; a tick too late is covered by the next one.
    Scheduled(task="ami.main.tasks.update_stale_counts", every_seconds=15, expires_seconds=14),
    Scheduled(task="ami.main.tasks.update_login_attempts", every_seconds=3600, expires_seconds=3000),
)
