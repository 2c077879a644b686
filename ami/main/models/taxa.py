"""Taxa and taxa lists."""

from typing import Any

from django.db import models
from django.db.models import Exists, OuterRef, Q

from ami.main.models.base import TimestampedModel
from ami.main.models.projects import Project

MAX_DEPTH = 40


class TaxonQuerySet(models.QuerySet["Taxon"]):
    """Taxa, filtered by project."""

    def used_in(self, projects: models.QuerySet[Any]) -> "TaxonQuerySet":
        """Return the shared taxa and those assigned to these projects by results or users."""
        assigned = Taxon.projects.through.objects.filter(taxon=OuterRef("pk"), project__in=projects)
        return self.filter(Q(shared=True) | Exists(assigned))


class Taxon(TimestampedModel):
    """A named group of organisms; ``parents_json`` is the path from the root, [{id, name, rank}, ...]."""

    class Rank(models.TextChoices):
        """Ranks in use, coarse to fine."""

        ORDER = "ORDER"
        SUPERFAMILY = "SUPERFAMILY"
        FAMILY = "FAMILY"
        SUBFAMILY = "SUBFAMILY"
        TRIBE = "TRIBE"
        GENUS = "GENUS"
        SPECIES = "SPECIES"
        UNKNOWN = "UNKNOWN"

    name = models.CharField(max_length=255, unique=True)
    display_name = models.CharField(max_length=255, unique=True, blank=True)
    rank = models.CharField(max_length=16, choices=Rank.choices, default=Rank.SPECIES)
    parent = models.ForeignKey("self", on_delete=models.SET_NULL, null=True, blank=True, related_name="children")
    parents_json = models.JSONField(default=list, blank=True, editable=False)
    search_names = models.JSONField(default=list, blank=True)
    active = models.BooleanField(default=True)
    shared = models.BooleanField(
        default=True, db_default=True, help_text="in the checklist that everybody sees, not only its projects"
    )
    synonym_of = models.ForeignKey("self", on_delete=models.SET_NULL, null=True, blank=True, related_name="synonyms")
    projects = models.ManyToManyField(Project, blank=True, related_name="taxa")

    objects = TaxonQuerySet.as_manager()

    class Meta:
        verbose_name_plural = "taxa"
        ordering = ["name"]

    def __str__(self) -> str:
        return self.display_name or self.name

    def save(self, *args: Any, **kwargs: Any) -> None:
        """Set the display name and the path to the root, then save."""
        self.display_name = self.display_name or self.name
        self.parents_json = self._path_to_root()
        if kwargs.get("update_fields"):
            kwargs["update_fields"] = {*kwargs["update_fields"], "display_name", "parents_json"}
        super().save(*args, **kwargs)

    def _path_to_root(self) -> list[dict[str, Any]]:
        path: list[dict[str, Any]] = []
        taxon = self.parent
        while taxon is not None and len(path) < MAX_DEPTH and taxon.pk != self.pk:
            path.insert(0, {"id": taxon.pk, "name": taxon.name, "rank": taxon.rank})
            taxon = taxon.parent
        return path

    @classmethod
    def with_descendants(cls, pks: set[int]) -> set[int]:
        """Return ``pks`` and the keys of all descendants, one query per level."""
        keys, frontier = set(pks), set(pks)
        while frontier:
            frontier = set(cls.objects.filter(parent_id__in=frontier).values_list("pk", flat=True)) - keys
            keys |= frontier
        return keys


class TaxaList(TimestampedModel):
    """A named list of taxa, such as a region's checklist."""

    name = models.CharField(max_length=255, unique=True)
    description = models.TextField(blank=True)
    taxa = models.ManyToManyField(Taxon, blank=True, related_name="lists")
    projects = models.ManyToManyField(Project, blank=True, related_name="taxa_lists")

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name
