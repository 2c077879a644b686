"""Projects, sites and devices."""

from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models, transaction
from django.utils.text import slugify

from ami.main.models.base import TimestampedModel
from ami.main.services.stale_marks import mark_stale, regroup_later

if TYPE_CHECKING:
    from ami.main.models.users import User


def default_feature_flags() -> dict[str, bool]:
    """Return the feature flags of a new project."""
    return {
        "tags": False,
        "reprocess_existing_detections": False,
        "default_filters": False,
        "reprocess_all_images": False,
        "async_pipeline_workers": True,
    }


class ProjectQuerySet(models.QuerySet["Project"]):
    """Projects, filtered by user."""

    def visible_to(self, user: "User") -> "ProjectQuerySet":
        """Return the projects that ``user`` owns or is a member of; a superuser sees all."""
        if getattr(user, "is_superuser", False):
            return self
        # A subquery, not a join: a join with the members would repeat every project that has several.
        mine = Project.members.through.objects.filter(user_id=user.pk).values("project_id")
        return self.filter(models.Q(owner_id=user.pk) | models.Q(pk__in=mine))


class Project(TimestampedModel):
    """A study with its stations, members and default filters."""

    name = models.CharField(max_length=255)
    description = models.TextField(blank=True)
    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, blank=True, related_name="owned_projects"
    )
    members = models.ManyToManyField(settings.AUTH_USER_MODEL, blank=True, related_name="projects")
    draft = models.BooleanField(default=False)
    active = models.BooleanField(default=True)
    feature_flags = models.JSONField(default=default_feature_flags, blank=True)
    session_time_gap_seconds = models.PositiveIntegerField(
        default=7200, validators=[MinValueValidator(1), MaxValueValidator(7 * 86_400)]
    )
    default_filters_score_threshold = models.FloatField(
        default=0.5, validators=[MinValueValidator(0.0), MaxValueValidator(1.0)]
    )
    default_filters_include_taxa = models.ManyToManyField(
        "main.Taxon", blank=True, related_name="projects_that_include_it"
    )
    default_filters_exclude_taxa = models.ManyToManyField(
        "main.Taxon", blank=True, related_name="projects_that_exclude_it"
    )
    default_processing_pipeline = models.ForeignKey(
        "ml.Pipeline", on_delete=models.SET_NULL, null=True, blank=True, related_name="default_of_projects"
    )

    objects = ProjectQuerySet.as_manager()

    class Meta:
        ordering = ["-created_at", "-pk"]

    def __str__(self) -> str:
        return self.name

    @property
    def slug(self) -> str:
        """The name made safe for file names and object keys; never empty."""
        return slugify(self.name)[:100] or f"project-{self.pk}"

    def has_member(self, user: "User") -> bool:
        """Whether ``user`` is the owner, a member or a superuser."""
        if user.is_superuser or self.owner_id == user.pk:
            return True
        return self.members.filter(pk=user.pk).exists()

    def save(self, *args: Any, **kwargs: Any) -> None:
        """Save; mark the counts stale when the score threshold changed, the sessions when the gap changed."""
        before = Project.objects.filter(pk=self.pk).first() if self.pk else None
        with transaction.atomic():
            super().save(*args, **kwargs)
            if before is None:
                return
            if before.default_filters_score_threshold != self.default_filters_score_threshold:
                mark_stale("project", [self.pk])
            if before.session_time_gap_seconds != self.session_time_gap_seconds:
                regroup_later(self.deployments.values_list("pk", flat=True))


class Site(TimestampedModel):
    """A research site with one or more stations."""

    name = models.CharField(max_length=255)
    description = models.TextField(blank=True)
    project = models.ForeignKey(Project, on_delete=models.CASCADE, null=True, blank=True, related_name="sites")

    class Meta:
        ordering = ["name", "pk"]

    def __str__(self) -> str:
        return self.name


class Device(TimestampedModel):
    """A kind of camera trap."""

    name = models.CharField(max_length=255)
    description = models.TextField(blank=True)
    project = models.ForeignKey(Project, on_delete=models.CASCADE, null=True, blank=True, related_name="devices")

    class Meta:
        ordering = ["name", "pk"]

    def __str__(self) -> str:
        return self.name
