"""A worker process as it last reported itself."""

from django.db import models


class Worker(models.Model):
    """One row per worker node, written with its beat; ``seen_at`` is the database's time of the last beat.

    A worker that ends in order deletes its row. Ages are seconds at the time of the beat.
    """

    node = models.CharField(max_length=255, primary_key=True)
    service = models.CharField(max_length=255, blank=True)
    host = models.CharField(max_length=255)
    queues = models.JSONField(default=list, help_text="the queues that it was started for")
    pool = models.CharField(max_length=64, blank=True)
    version = models.CharField(max_length=255, blank=True, help_text="the version that it runs")
    boot_id = models.CharField(max_length=64, blank=True)
    pid_namespace = models.CharField(max_length=64, blank=True)
    pid = models.PositiveBigIntegerField()
    pid_started = models.PositiveBigIntegerField(default=0, help_text="clock ticks after boot")
    children = models.JSONField(default=list, help_text="[pid, start time in clock ticks] of each child")
    connection_name = models.CharField(max_length=255, blank=True, help_text="of all its connections to the broker")
    database_name = models.CharField(max_length=63, blank=True, help_text="application_name of all its connections")
    consumers = models.JSONField(default=list, help_text="its consumers' owners on a broker with leases")
    started_at = models.DateTimeField()
    seen_at = models.DateTimeField(db_index=True)
    is_connected = models.BooleanField(default=False)
    loop_age_seconds = models.FloatField(default=0.0, help_text="since the loop last turned")
    loop_allowance_seconds = models.FloatField(
        default=0.0, help_text="how long a solo worker's task may still block it"
    )
    frame_age_seconds = models.FloatField(null=True, help_text="since the last frame from the broker")
    is_parked = models.BooleanField(default=False)
    closed_queues = models.JSONField(default=list, help_text="its queues from which no task can begin")
    concurrency = models.PositiveIntegerField(default=0)
    repairs = models.JSONField(default=dict, help_text="how often each kind of drift was repaired")
    running = models.JSONField(default=list, help_text="what runs: id, task, pid, started, attempt, KiB, progress")
    unaccounted = models.PositiveIntegerField(default=0, help_text="delivered messages that it does not run")
    totals = models.JSONField(
        default=dict, help_text="what its tasks waited and ran since its start, by queue and task"
    )
    governor = models.JSONField(null=True, help_text="memory, thresholds and reasons of its governor")
    verdict = models.CharField(
        max_length=32, blank=True, db_default="", help_text="why it was flagged; empty when it is well"
    )
    flagged_at = models.DateTimeField(null=True)

    class Meta:
        verbose_name = "worker"

    def __str__(self) -> str:
        return self.node
