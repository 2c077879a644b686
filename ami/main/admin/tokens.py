"""The admin of API tokens: owner, last use, revocation; never a key."""

from typing import Any

from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest

from ami.main.admin.maintenance import ReadOnlyAdmin
from ami.main.models import ApiToken
from ami.queues.admin_site.user_messages import selected_rows


@admin.register(ApiToken)
class ApiTokenAdmin(ReadOnlyAdmin):
    """Tokens; their keys are not stored. `manage.py tokens create` and the API create them."""

    list_display = ("prefix", "name", "user", "scope", "created_at", "last_used_at", "expires_at", "revoked_at")
    list_filter = ("scope", "revoked_at", "last_used_at")
    list_select_related = ("user",)
    search_fields = ("name", "user__email", "prefix")
    exclude = ("digest",)
    readonly_fields = ("prefix", "created_at", "last_used_at", "revoked_at")
    actions = ("revoke",)

    @admin.action(description="Revoke selected tokens", permissions=["revoke"])
    def revoke(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        keys = [token.pk for token in selected_rows(request, queryset)]
        if keys:
            count = ApiToken.objects.filter(pk__in=keys).revoke()
            self.message_user(request, f"{count} of {len(keys)} tokens revoked.", messages.SUCCESS)

    def has_revoke_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("main.revoke_apitoken")
