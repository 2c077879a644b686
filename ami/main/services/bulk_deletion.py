"""Bulk deletion of captures or occurrences in small steps; marks the affected counts stale."""

from collections.abc import Iterable

from django.contrib.auth.base_user import AbstractBaseUser
from django.db import models, transaction
from django.utils import timezone

from ami.main.models.captures import SourceImage
from ami.main.models.maintenance import BulkDeletion
from ami.main.models.occurrences import Detection, Occurrence
from ami.main.services.stale_marks import mark_stale
from ami.queues import fence
from ami.queues.slices import Slice

STEP = 100

TARGETS: dict[str, type[SourceImage] | type[Occurrence]] = {"captures": SourceImage, "occurrences": Occurrence}


def request_deletion(target: str, pks: Iterable[int], requested_by: AbstractBaseUser | None) -> BulkDeletion:
    """Store the keys to delete, so that the message carries one key however many rows are selected (incident 45).

    Raises:
        ValueError: unknown target.
    """
    if target not in TARGETS:
        raise ValueError(f"'{target}' cannot be deleted in bulk; choose one of {', '.join(TARGETS)}.")
    return BulkDeletion.objects.create(target=target, pks=sorted(set(pks)), requested_by=requested_by)


def advance_deletion(deletion: BulkDeletion, turn: Slice) -> bool:
    """Delete the next rows until the slice is over; return whether all are deleted. An empty request deletes none."""
    while deletion.done < len(deletion.pks):
        step = deletion.pks[deletion.done : deletion.done + STEP]
        with transaction.atomic():
            fence.check()
            delete(TARGETS[deletion.target], step)
            deletion.done += len(step)
            # Two concurrent workers delete the same rows in the same order; the counter only increases.
            BulkDeletion.objects.filter(pk=deletion.pk, done__lt=deletion.done).update(done=deletion.done)
        if turn.over() and deletion.done < len(deletion.pks):
            return False
    BulkDeletion.objects.filter(pk=deletion.pk, finished_at=None).update(finished_at=timezone.now())
    return True


@transaction.atomic
def delete(model: type[models.Model], pks: Iterable[int]) -> None:
    """Delete these captures or occurrences with all dependent rows; no keys delete nothing (hazard 5).

    Deleting an occurrence deletes its detection; otherwise the next result of the detector would recreate it.
    """
    rows = model._default_manager.filter(pk__in=list(pks))
    touched = list(rows.values_list("event_id", "deployment_id"))
    mark_stale("event", [event for event, _ in touched])
    mark_stale("deployment", [deployment for _, deployment in touched])
    if model is Occurrence:
        Detection.objects.filter(occurrence__in=rows).delete()
    else:
        rows.delete()
