"""What an operator wants of a queue or of workers; a row stays until another wish for the same target replaces it."""

from django.db import models


class DesiredState(models.Model):
    """One wish: the value of one ``aspect`` of one target.

    Of several wishes that reach one worker (for its node, its host, its service) the latest by ``since`` counts. A wish
    whose ``until`` is over has no effect.
    """

    class Kind(models.TextChoices):
        """What ``name`` names."""

        QUEUE = "queue"
        SERVICE = "service"
        HOST = "host"
        NODE = "node"
        TASK = "task"
        TASK_NAME = "task name"
        JOB = "job"
        PERMITS = "permits"
        RATE = "rate"
        FAIR_KEY = "fair key"

    class Aspect(models.TextChoices):
        """The value is 1 or 0; for CONCURRENCY a number of processes, 0 for what the worker was started with; for
        RESTARTED epoch seconds, before which no child may have started; for MOST a number of runs, 0 for the code's;
        for WEIGHT a number, 0 for 1.
        """

        PAUSED = "paused"
        PARKED = "parked"
        STOPPED = "stopped"
        CONCURRENCY = "concurrency"
        RESTARTED = "restarted"
        CANCELLED = "cancelled"
        DISABLED = "disabled"
        MOST = "most"
        WEIGHT = "weight"

    kind = models.CharField(max_length=16, choices=Kind.choices)
    name = models.CharField(max_length=255)
    aspect = models.CharField(max_length=16, choices=Aspect.choices)
    value = models.BigIntegerField()
    by = models.CharField(max_length=255)
    why = models.CharField(max_length=500, blank=True)
    since = models.DateTimeField(help_text="the database's time")
    until = models.DateTimeField(null=True, help_text="when it undoes itself")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["kind", "name", "aspect"], name="queues_one_wish_per_target")]
        permissions = [
            ("pause_queue", "Can pause, resume and drain queues"),
            ("move_messages", "Can move messages between queues"),
            ("purge_queue", "Can delete the messages of queues"),
            ("peek_queue", "Can look at the messages of queues"),
            ("control_workers", "Can park, stop, scale and restart workers"),
            ("cancel_task", "Can cancel tasks"),
            ("disable_task", "Can disable and enable tasks and jobs"),
            ("limit_tasks", "Can change limits and weights, compact and release calls"),
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.name}: {self.aspect}={self.value}"
