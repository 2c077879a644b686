"""The admin of people."""

from typing import Any

from django.contrib import admin
from django.contrib.auth.admin import UserAdmin as DjangoUserAdmin
from django.contrib.auth.forms import AdminUserCreationForm
from django.http import HttpRequest

from ami.main.models import User

#: What makes somebody else of a person; who might give it to themselves would have it.
RIGHTS = ("is_staff", "is_superuser", "groups", "user_permissions")


class PersonCreationForm(AdminUserCreationForm):
    """Asks for an e-mail address where Django's form asks for a user name."""

    class Meta:
        model = User
        fields = ("email",)


@admin.register(User)
class UserAdmin(DjangoUserAdmin):
    """People, by e-mail address."""

    list_display = ("email", "name", "is_staff", "is_active", "last_login")
    search_fields = ("email", "name")
    ordering = ("email",)
    add_form = PersonCreationForm
    fieldsets = (
        (None, {"fields": ("email", "password")}),
        ("Person", {"fields": ("name", "first_name", "last_name")}),
        ("May", {"fields": ("is_active", "is_staff", "is_superuser", "groups", "user_permissions")}),
        ("Dates", {"fields": ("last_login", "date_joined")}),
    )
    add_fieldsets = ((None, {"fields": ("email", "usable_password", "password1", "password2")}),)

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        """Let superusers alone give rights: whoever may change people would else make a superuser of themselves."""
        shown = super().get_readonly_fields(request, obj)
        return shown if request.user.is_superuser else (*shown, *RIGHTS)

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Keep staff from those who may more than they: a new password, too, would be a way in."""
        return _reaches(request.user, obj) and super().has_change_permission(request, obj)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Keep staff from deleting those who may more than they."""
        return _reaches(request.user, obj) and super().has_delete_permission(request, obj)


def _reaches(person: Any, other: User | None) -> bool:
    """Whether ``other`` has no right that ``person`` lacks."""
    if other is None or person.is_superuser or other.pk == person.pk:
        return True
    return not other.is_superuser and other.get_all_permissions() <= person.get_all_permissions()
