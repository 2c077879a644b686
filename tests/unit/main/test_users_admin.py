"""Staff who may edit users cannot extend their own rights."""

import pytest
from django.contrib.auth.models import Permission
from django.test import Client

from ami.main.models import User

pytestmark = pytest.mark.django_db

NEW = {"password1": "Another-12345x", "password2": "Another-12345x", "usable_password": "true"}
FORM = {
    "is_active": "on",
    "is_staff": "on",
    "is_superuser": "on",
    "date_joined_0": "2024-01-01",
    "date_joined_1": "0:00",
}


@pytest.fixture
def staff(settings, tmp_path):
    settings.STATIC_ROOT = str(tmp_path)
    person = User.objects.create_user("staff@example.org", is_staff=True)
    person.user_permissions.set(Permission.objects.filter(codename__in=["change_user", "view_user", "delete_user"]))
    client = Client()
    client.force_login(person)
    return person, client


def test_staff_cannot_give_themselves_rights(staff):
    person, client = staff
    form = {**FORM, "email": person.email, "name": "New"}
    assert client.post(f"/admin/main/user/{person.pk}/change/", form).status_code == 302
    person.refresh_from_db()
    assert (person.name, person.is_superuser, person.user_permissions.count()) == ("New", False, 3)


def test_staff_cannot_edit_or_delete_users_with_more_rights(staff):
    _, client = staff
    boss = User.objects.create_superuser("boss@example.org", "Right-12345x")
    clerk = User.objects.create_user("clerk@example.org", "Right-12345x", is_staff=True)
    clerk.user_permissions.set(Permission.objects.filter(codename="revoke_apitoken"))
    for other in (boss, clerk):
        for path, form in (
            ("password", NEW),
            ("change", {**FORM, "email": "mine@example.org"}),
            ("delete", {"post": "yes"}),
        ):
            assert client.post(f"/admin/main/user/{other.pk}/{path}/", form).status_code == 403, (other, path)
        chosen = {"action": "delete_selected", "_selected_action": [other.pk], "post": "yes"}
        client.post("/admin/main/user/", chosen)
        other.refresh_from_db()
        assert other.check_password("Right-12345x")


def test_staff_change_the_password_of_an_ordinary_person(staff):
    _, client = staff
    person = User.objects.create_user("ordinary@example.org", "Right-12345x")
    assert client.post(f"/admin/main/user/{person.pk}/password/", NEW).status_code == 302
    person.refresh_from_db()
    assert person.check_password("Another-12345x")
