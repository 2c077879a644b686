"""Calculated fields, updated with a delay: a change of data marks them stale, a call recounts them.

Counting inside every ingest transaction would scan the whole station per image, quadratic in its size (facts 4).
"""

from django.db import transaction
from django.db.models import Count, F, Max, Min, Q, QuerySet, Subquery, Sum
from django.db.models.expressions import OuterRef
from django.db.models.functions import Coalesce
from django.utils import timezone

from ami.main.models.captures import SourceImage
from ami.main.models.occurrences import Detection, Occurrence
from ami.main.models.projects import Project
from ami.main.models.stations import Deployment, Event
from ami.main.services.default_filters import default_filter
from ami.main.services.stale_marks import mark_stale


def refresh(kind: str, pk: int) -> None:
    """Recount one event or deployment, or mark all of a project stale; a deleted object is skipped.

    The row is locked first, so that the later of two refreshes counts what the earlier could not see yet. The lock
    does not block inserts of rows that refer to it.
    """
    {"event": _refresh_event, "deployment": _refresh_deployment, "project": _mark_whole_project}[kind](pk)


@transaction.atomic
def _refresh_event(pk: int) -> None:
    event = Event.objects.select_for_update(no_key=True, of=("self",)).select_related("project").filter(pk=pk).first()
    if event is None:
        return
    captures = SourceImage.objects.filter(event_id=pk)
    _correct_captures(captures, event.project)
    totals = captures.aggregate(number=Count("pk"), first=Min("timestamp"), last=Max("timestamp"))
    # Every detection has exactly one occurrence, which knows its event and station.
    found = Occurrence.objects.filter(default_filter(event.project), event_id=pk).count()
    Event.objects.filter(pk=pk).update(
        captures_count=totals["number"],
        start=totals["first"],
        end=totals["last"],
        detections_count=found,
        occurrences_count=found,
        calculated_fields_updated_at=timezone.now(),
    )


@transaction.atomic
def _refresh_deployment(pk: int) -> None:
    stations = Deployment.objects.select_for_update(no_key=True, of=("self",)).select_related("project")
    station = stations.filter(pk=pk).first()
    if station is None:
        return
    captures = SourceImage.objects.filter(deployment_id=pk)
    _correct_captures(captures.filter(event=None), station.project)
    totals = captures.aggregate(number=Count("pk"), bytes=Sum("size"), first=Min("timestamp"), last=Max("timestamp"))
    occurrences = Occurrence.objects.filter(default_filter(station.project), deployment_id=pk)
    found = occurrences.aggregate(number=Count("pk"), taxa=Count("determination", distinct=True))
    Deployment.objects.filter(pk=pk).update(
        captures_count=totals["number"],
        data_source_total_files=totals["number"],
        data_source_total_size=totals["bytes"] or 0,
        first_capture_timestamp=totals["first"],
        last_capture_timestamp=totals["last"],
        events_count=Event.objects.filter(deployment_id=pk).count(),
        detections_count=found["number"],
        occurrences_count=found["number"],
        taxa_count=found["taxa"],
        calculated_fields_updated_at=timezone.now(),
    )


@transaction.atomic
def _mark_whole_project(pk: int) -> None:
    mark_stale("event", Event.objects.filter(project_id=pk).values_list("pk", flat=True))
    mark_stale("deployment", Deployment.objects.filter(project_id=pk).values_list("pk", flat=True))


def _correct_captures(captures: "QuerySet[SourceImage]", project: Project) -> None:
    detections = Detection.objects.real().filter(source_image_id=OuterRef("pk"))
    detections = detections.filter(default_filter(project, "occurrence__")).order_by()
    number = Subquery(detections.values("source_image_id").annotate(number=Count("pk")).values("number"))
    # Write only rows that differ: an unchanged row needs no lock and no new version.
    wrong = captures.annotate(counted=Coalesce(number, 0)).exclude(Q(detections_count=F("counted")))
    wrong.order_by().update(detections_count=Coalesce(number, 0), updated_at=timezone.now())
