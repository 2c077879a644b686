"""The periodic tasks of the app `jobs`."""

from ami.queues.schedule import Scheduled

SCHEDULE = [
    Scheduled(task="ami.jobs.tasks.audit_jobs", every_seconds=60, expires_seconds=50),
    Scheduled(task="ami.jobs.tasks.audit_stored_results", every_seconds=120, expires_seconds=100),
    Scheduled(task="ami.jobs.tasks.audit_data_integrity", every_seconds=3600, expires_seconds=3000),
    Scheduled(task="ami.jobs.tasks.jobs_health_check", every_seconds=900, expires_seconds=840),
]
