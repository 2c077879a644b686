"""The admin of people."""

from django.contrib import admin
from django.contrib.auth.admin import UserAdmin as DjangoUserAdmin
from django.contrib.auth.forms import AdminUserCreationForm

from ami.main.models import User


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
