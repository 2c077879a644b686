"""Read-only admin of maintenance rows: leases, bulk deletions, login attempts."""

from typing import Any

from django.contrib import admin
from django.http import HttpRequest

from ami.main.models import BulkDeletion, LoginAttempts
from ami.queues.models import Lease


class ReadOnlyAdmin(admin.ModelAdmin):
    """Rows that only the application writes."""

    def has_add_permission(self, request: HttpRequest) -> bool:  # noqa: ARG002
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:  # noqa: ARG002
        return False


@admin.register(Lease)
class LeaseAdmin(ReadOnlyAdmin):
    """Leases; deleting one frees it and discards its progress."""

    list_display = ("name", "holder", "until")
    search_fields = ("name",)


@admin.register(BulkDeletion)
class BulkDeletionAdmin(ReadOnlyAdmin):
    """Requested bulk deletions and their progress."""

    list_display = ("id", "target", "done", "requested_by", "created_at", "finished_at")
    list_filter = ("target",)
    list_select_related = ("requested_by",)


@admin.register(LoginAttempts)
class LoginAttemptsAdmin(ReadOnlyAdmin):
    """Counted sign-in attempts; deleting a row lifts its limit."""

    list_display = ("digest", "attempts", "ends_at")
