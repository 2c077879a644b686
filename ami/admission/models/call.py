"""A call of a task with a policy, from its caller's transaction until its run has ended."""

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now


class Call(models.Model):
    """Rows are only appended: two callers never wait for each other. ``run`` is null while the call waits.

    ``lane`` names what is picked in turn: the calls of one priority, fair key, permit key and rate key. ``key`` is null
    for a task without one (`ami.admission.policies.Policy.key_names`); of a long one it is a digest, and ``key_text``
    has the arguments. ``ready`` is false until the dispatcher finds that ``not_before`` has come: what waits for its
    time is in no index of what may be sent. The calls of one ``part`` are run together and with no others: a half of a
    group that failed. ``stopped_at`` is set while the first call of a key in order is a letter.
    """

    task_id = models.CharField(max_length=255)
    task = models.CharField(max_length=255)
    queue = models.CharField(max_length=255)
    lane = models.CharField(max_length=255, blank=True)
    key = models.CharField(max_length=255, null=True)  # noqa: DJ001 - null is equal to nothing
    key_text = models.TextField(blank=True)
    permit_key = models.CharField(max_length=255, blank=True)
    permit_cost = models.PositiveIntegerField(default=1, db_default=1)
    rate_key = models.CharField(max_length=255, blank=True)
    fair_key = models.CharField(max_length=255, blank=True)
    arguments = models.TextField(help_text="JSON: args and kwargs")
    options = models.TextField(help_text="JSON: what it is published with")
    not_before = models.DateTimeField(null=True)
    ready = models.BooleanField(default=True, db_default=True)
    expires = models.DateTimeField(null=True)
    retries = models.PositiveIntegerField(default=0)
    starts = models.PositiveIntegerField(default=0, help_text="how often it was sent, apart from its retries")
    run = models.CharField(max_length=32, null=True)  # noqa: DJ001 - null is equal to nothing
    priority = models.PositiveSmallIntegerField(default=0)
    part = models.CharField(max_length=32, blank=True)
    stopped_at = models.DateTimeField(null=True)
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        # By constraints alone: each index of a text field for LIKE would cost every step of a call.
        constraints = [models.UniqueConstraint(fields=["task_id"], name="admission_one_call_per_id")]
        indexes = [
            models.Index(
                fields=["queue", "lane", "id"], condition=Q(run=None, ready=True), name="admission_call_waiting"
            ),
            models.Index(fields=["key", "id"], condition=Q(run=None), name="admission_call_key"),
            models.Index(
                fields=["key"], condition=Q(run=None, ready=False, retries__gt=0), name="admission_call_retried"
            ),
            models.Index(
                fields=["queue", "not_before"], condition=Q(run=None, ready=False), name="admission_call_delayed"
            ),
            models.Index(
                fields=["expires"], condition=Q(run=None, expires__isnull=False), name="admission_call_expires"
            ),
            models.Index(fields=["run"], condition=Q(run__isnull=False), name="admission_call_run"),
            models.Index(fields=["key"], condition=Q(stopped_at__isnull=False), name="admission_call_stopped"),
        ]

    def __str__(self) -> str:
        return f"{self.task} {self.task_id}"
