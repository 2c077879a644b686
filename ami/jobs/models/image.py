"""One row per image of a job, from which the job's progress is derived."""

from django.db import models
from django.db.models import Q

from ami.jobs.models.states import UNSETTLED, ImageState


class JobImageQuerySet(models.QuerySet["JobImage"]):
    """Queries for images of jobs."""

    def unsettled(self) -> "JobImageQuerySet":
        """Return images without a result or an error."""
        return self.filter(state__in=UNSETTLED)


class JobImage(models.Model):
    """The state of one image of one job, and the lease of the worker that claimed it."""

    job = models.ForeignKey("jobs.Job", on_delete=models.CASCADE, related_name="images")
    source_image = models.ForeignKey("main.SourceImage", on_delete=models.CASCADE, related_name="job_images")
    state = models.CharField(max_length=16, choices=ImageState.choices, default=ImageState.PENDING)
    position = models.PositiveBigIntegerField(default=0, help_text="order of publishing; random when shuffled")
    attempts = models.PositiveIntegerField(default=0)
    reply_subject = models.CharField(max_length=1024, blank=True)
    lease_expires_at = models.DateTimeField(null=True, blank=True)
    claimed_by = models.CharField(max_length=64, blank=True, db_default="", help_text="the pull client")
    extensions = models.PositiveSmallIntegerField(default=0, db_default=0, help_text="of the lease, for this claim")
    published_at = models.DateTimeField(null=True, blank=True)
    settled_at = models.DateTimeField(null=True, blank=True)
    error = models.TextField(blank=True)
    detections_count = models.PositiveIntegerField(default=0)
    classifications_count = models.PositiveIntegerField(default=0)

    objects = JobImageQuerySet.as_manager()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["job", "source_image"], name="one_row_per_job_and_image")]
        indexes = [
            models.Index(fields=["job", "state", "position"]),
            models.Index(
                fields=["lease_expires_at"],
                name="jobs_image_claimed_lease",
                condition=Q(state=ImageState.CLAIMED),
            ),
        ]

    def __str__(self) -> str:
        return f"image {self.source_image_id} of job {self.job_id}: {self.state}"
