"""Admin actions on other apps' models that concern pipelines; `ami.main` puts them on its capture admin."""

from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest

from ami.queues.admin_site.messages import chosen, tell
from ami.queues.publish import ask


@admin.action(description="Reprocess selected captures", permissions=["change"])
def reprocess_captures(_: Any, request: HttpRequest, queryset: QuerySet[Any]) -> None:
    """Ask for a job per project over the selected captures, with each project's default pipeline."""
    from ami.ml.tasks import reprocess_captures as task

    ids = chosen(request, queryset.order_by("pk").values_list("pk", flat=True))
    if ids:
        tell(request, f"Reprocessing {len(ids)} captures", ask(task, source_image_ids=ids))
