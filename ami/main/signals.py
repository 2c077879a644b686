"""Signal handlers for changes of models."""

from typing import Any

from django.core.files.storage import default_storage
from django.db import transaction
from django.db.models.signals import m2m_changed, post_delete, post_save
from django.dispatch import receiver

from ami.main.models import Detection, Identification, Project
from ami.main.services.determinations import determine
from ami.main.services.stale_marks import mark_stale


@receiver([post_save, post_delete], sender=Identification)
def determine_occurrence(instance: Identification, **_: Any) -> None:
    determine([instance.occurrence_id])


@receiver(post_save, sender=Identification)
def link_taxon(instance: Identification, **_: Any) -> None:
    """Assign the identified taxon to the occurrence's project, as results do with their labels."""
    if instance.taxon is not None:
        instance.taxon.projects.add(instance.occurrence.project_id)


@receiver(post_delete, sender=Detection)
def delete_crop(instance: Detection, **_: Any) -> None:
    """Delete the crop's file after the deletion of its detection has committed."""
    if path := instance.path:
        transaction.on_commit(lambda: default_storage.delete(path), robust=True)


@receiver(m2m_changed, sender=Project.default_filters_include_taxa.through)
@receiver(m2m_changed, sender=Project.default_filters_exclude_taxa.through)
def mark_project(sender: Any, instance: Any, action: str, reverse: bool, pk_set: set[int] | None, **_: Any) -> None:
    """Mark the counts of a project stale when its default taxa change."""
    if action in {"post_add", "post_remove"}:
        mark_stale("project", pk_set or () if reverse else [instance.pk])
    elif action == "pre_clear" and reverse:
        # The projects of the taxon can be read only before they are cleared.
        mark_stale("project", _projects_of(instance, sender))
    elif action == "post_clear" and not reverse:
        mark_stale("project", [instance.pk])


def _projects_of(taxon: Any, through: Any) -> Any:
    return through.objects.filter(taxon_id=taxon.pk).values_list("project_id", flat=True)
