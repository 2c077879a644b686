"""The admin of what is stale, leased or being deleted: to look at, not to change."""

from typing import Any

from django.contrib import admin
from django.http import HttpRequest

from ami.main.models import BulkDeletion, Lease, LoginAttempts, StaleCount


class ReadOnlyAdmin(admin.ModelAdmin):
    """Shows rows that only the program writes."""

    def has_add_permission(self, request: HttpRequest) -> bool:  # noqa: ARG002
        """Nobody adds one by hand."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:  # noqa: ARG002
        """Nobody changes one by hand."""
        return False


@admin.register(StaleCount)
class StaleCountAdmin(ReadOnlyAdmin):
    """Marks that wait for the next flush; an old one says that its object cannot be counted."""

    list_display = ("kind", "object_pk", "marked_at")
    list_filter = ("kind",)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:  # noqa: ARG002
        """Nobody forgets a mark by hand; refresh the object instead."""
        return False


@admin.register(Lease)
class LeaseAdmin(ReadOnlyAdmin):
    """Leases; deleting one frees it and drops how far its work was."""

    list_display = ("name", "lease_owner", "lease_expires_at")
    search_fields = ("name",)


@admin.register(BulkDeletion)
class BulkDeletionAdmin(ReadOnlyAdmin):
    """What people asked to delete, and how far it is."""

    list_display = ("id", "target", "done", "requested_by", "created_at", "finished_at")
    list_filter = ("target",)
    list_select_related = ("requested_by",)


@admin.register(LoginAttempts)
class LoginAttemptsAdmin(ReadOnlyAdmin):
    """Counted attempts to sign in; deleting a row lets whom it keeps waiting try again at once."""

    list_display = ("digest", "attempts", "ends_at")
