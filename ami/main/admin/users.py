"""The admin of users."""

from typing import Any

from django.contrib import admin
from django.contrib.auth.admin import UserAdmin as DjangoUserAdmin
from django.contrib.auth.forms import AdminUserCreationForm
from django.http import HttpRequest

from ami.main.models import User

#: Fields that grant rights; only a superuser may change them.
RIGHTS = ("is_staff", "is_superuser", "groups", "user_permissions")


class UserEmailCreationForm(AdminUserCreationForm):
    """Django's form with an e-mail address in place of the user name."""

    class Meta:
        model = User
        fields = ("email",)


@admin.register(User)
class UserAdmin(DjangoUserAdmin):
    """Users, by e-mail address."""

    list_display = ("email", "name", "is_staff", "is_active", "last_login")
    search_fields = ("email", "name")
    ordering = ("email",)
    add_form = UserEmailCreationForm
    fieldsets = (
        (None, {"fields": ("email", "password")}),
        ("Person", {"fields": ("name", "first_name", "last_name")}),
        ("May", {"fields": ("is_active", "is_staff", "is_superuser", "groups", "user_permissions")}),
        ("Dates", {"fields": ("last_login", "date_joined")}),
    )
    add_fieldsets = ((None, {"fields": ("email", "usable_password", "password1", "password2")}),)

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        """Make the rights read-only for everyone but superusers, so that staff cannot promote themselves."""
        readonly = super().get_readonly_fields(request, obj)
        return readonly if request.user.is_superuser else (*readonly, *RIGHTS)

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Refuse users with more rights than the editor: changing their password would give access to those rights."""
        return _may_edit(request.user, obj) and super().has_change_permission(request, obj)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return _may_edit(request.user, obj) and super().has_delete_permission(request, obj)


def _may_edit(editor: Any, other: User | None) -> bool:
    """Whether ``other`` has no right that ``editor`` lacks."""
    if other is None or editor.is_superuser or other.pk == editor.pk:
        return True
    return not other.is_superuser and other.get_all_permissions() <= editor.get_all_permissions()
