"""The admin of pipelines, algorithms and processing services."""

from typing import Any

from django.contrib import admin, messages
from django.db.models import Q, QuerySet
from django.http import HttpRequest

from ami.ml.models import (
    Algorithm,
    AlgorithmCategoryMap,
    Pipeline,
    ProcessingService,
    ProjectPipelineConfig,
)
from ami.ml.services.shared_copies import CannotBeShared, add_to_catalogue
from ami.ml.tasks import check_processing_service
from ami.queues.admin_site.user_messages import report_published, selected_rows
from ami.queues.publish import publish_each_for_user


class OwnedAdmin(admin.ModelAdmin):
    """Rows that belong to one project or, without a project, to the staff; the owner never changes."""

    list_select_related: tuple[str, ...] = ("project",)
    raw_id_fields: tuple[str, ...] = ("project",)

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        # Related rows belong to the same project, so the project of an existing row is fixed.
        fields = tuple(super().get_readonly_fields(request, obj))
        return (*fields, "project") if obj else fields


@admin.register(ProcessingService)
class ProcessingServiceAdmin(OwnedAdmin):
    """Services with the time they were last seen, and an action that checks them."""

    list_display = ("name", "project", "endpoint_url", "state", "last_seen", "last_seen_latency")
    list_filter = ("last_seen_live",)
    search_fields = ("name",)
    readonly_fields = ("state", "last_seen", "last_seen_live", "last_seen_latency", "failing_since")
    filter_horizontal = ("projects", "pipelines")
    actions = ("check_now",)

    def save_related(self, request: HttpRequest, form: Any, formsets: Any, change: bool) -> None:
        """Link a project's own service to its project."""
        super().save_related(request, form, formsets, change)
        if form.instance.project_id:
            form.instance.projects.add(form.instance.project_id)

    @admin.action(description="Check selected services now", permissions=["change"])
    def check_now(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        services = selected_rows(request, queryset)
        many = [{"service_id": service.pk} for service in services]
        for service, published in zip(services, publish_each_for_user(check_processing_service, many), strict=True):
            report_published(request, f"Checking {service.name}", published)


class ProjectPipelineConfigInline(admin.TabularInline):
    """Projects that use the pipeline, with their configuration."""

    model = ProjectPipelineConfig
    extra = 0
    raw_id_fields = ("project",)


@admin.register(Pipeline)
class PipelineAdmin(OwnedAdmin):
    """Pipelines with their algorithms; a pipeline without a project is in the shared catalogue."""

    list_display = ("name", "slug", "version", "project")
    list_filter = (("project", admin.EmptyFieldListFilter),)
    search_fields = ("name", "slug", "aliases__slug")
    filter_horizontal = ("algorithms",)
    readonly_fields = ("aliases",)
    inlines = (ProjectPipelineConfigInline,)
    actions = ("share",)

    @admin.display(description="further slugs")
    def aliases(self, pipeline: Pipeline) -> str:
        """Return the slugs by which services know the pipeline, too."""
        return ", ".join(pipeline.aliases.values_list("slug", flat=True)) if pipeline.pk else ""

    def get_form(self, request: HttpRequest, obj: Any = None, **kwargs: Any) -> Any:
        """Offer shared algorithms and those of the pipeline's project."""
        form = super().get_form(request, obj, **kwargs)
        if field := form.base_fields.get("algorithms"):
            whose = Q(project=obj.project_id) if obj and obj.project_id else Q()
            field.queryset = Algorithm.objects.filter(Q(project=None) | whose)
        return form

    @admin.action(description="Copy selected pipelines into the shared catalogue", permissions=["share"])
    def share(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        """Copy each with its algorithms; a project uses the copy after staff enable it in the inline below."""
        for pipeline in selected_rows(request, queryset):
            try:
                shared = add_to_catalogue(pipeline)
            except CannotBeShared as error:
                self.message_user(request, str(error), messages.WARNING)
                continue
            self.log_addition(request, shared, f"Copied from pipeline {pipeline.pk} of project {pipeline.project_id}.")
            self.message_user(request, f"{shared} is in the shared catalogue as pipeline {shared.pk}.")

    def has_share_permission(self, request: HttpRequest) -> bool:
        """Require the permissions to add and to change pipelines."""
        return self.has_add_permission(request) and self.has_change_permission(request)


@admin.register(Algorithm)
class AlgorithmAdmin(OwnedAdmin):
    """Algorithms."""

    list_display = ("name", "key", "version", "task_type", "project")
    list_filter = ("task_type",)
    search_fields = ("name", "key", "aliases__key")
    raw_id_fields = ("project", "category_map")
    readonly_fields = ("aliases",)

    @admin.display(description="further keys")
    def aliases(self, algorithm: Algorithm) -> str:
        """Return the keys by which services know the algorithm, too."""
        return ", ".join(algorithm.aliases.values_list("key", flat=True)) if algorithm.pk else ""


@admin.register(AlgorithmCategoryMap)
class AlgorithmCategoryMapAdmin(OwnedAdmin):
    """Category maps."""

    list_display = ("__str__", "version", "description", "project")
    readonly_fields = ("labels_hash",)
