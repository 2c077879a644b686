"""The admin of pipelines, algorithms and processing services."""

from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest

from ami.ml.models import Algorithm, AlgorithmCategoryMap, Pipeline, ProcessingService, ProjectPipelineConfig
from ami.ml.tasks import check_processing_service
from ami.queues.answering import tell
from ami.queues.asking import ask
from ami.queues.choosing import chosen


@admin.register(ProcessingService)
class ProcessingServiceAdmin(admin.ModelAdmin):
    """Services: when they were last seen, and a check now."""

    list_display = ("name", "endpoint_url", "last_seen_live", "last_seen", "last_seen_latency")
    list_filter = ("last_seen_live",)
    search_fields = ("name",)
    readonly_fields = ("last_seen", "last_seen_live", "last_seen_latency")
    filter_horizontal = ("projects", "pipelines")
    actions = ("check_now",)

    @admin.action(description="Check selected services now", permissions=["change"])
    def check_now(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        """Ask for a check of each selected service."""
        for service in chosen(request, queryset):
            tell(request, f"Checking {service.name}", ask(check_processing_service, service_id=service.pk))


class ProjectPipelineConfigInline(admin.TabularInline):
    """In which projects a pipeline is used, and how."""

    model = ProjectPipelineConfig
    extra = 0
    raw_id_fields = ("project",)


@admin.register(Pipeline)
class PipelineAdmin(admin.ModelAdmin):
    """Pipelines with their algorithms."""

    list_display = ("name", "slug", "version")
    search_fields = ("name", "slug")
    filter_horizontal = ("algorithms",)
    inlines = (ProjectPipelineConfigInline,)


@admin.register(Algorithm)
class AlgorithmAdmin(admin.ModelAdmin):
    """Algorithms."""

    list_display = ("name", "key", "version", "task_type")
    list_filter = ("task_type",)
    search_fields = ("name", "key")
    raw_id_fields = ("category_map",)


@admin.register(AlgorithmCategoryMap)
class AlgorithmCategoryMapAdmin(admin.ModelAdmin):
    """Category maps."""

    list_display = ("__str__", "version", "description")
    readonly_fields = ("labels_hash",)
