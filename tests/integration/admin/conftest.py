"""Fixtures of the admin's tests: browsers of users with different permissions, and a media folder per test."""

import pytest
from django.contrib.auth.models import Permission
from django.test import Client

from tests.support.product import factories


@pytest.fixture(autouse=True)
def folders(tmp_path, settings):
    for name in ("static", "media"):
        (tmp_path / name).mkdir()
    settings.STATIC_ROOT, settings.MEDIA_ROOT = str(tmp_path / "static"), str(tmp_path / "media")


@pytest.fixture
def superuser(transactional_db):
    return factories.user(is_staff=True, is_superuser=True)


@pytest.fixture
def browser(superuser):
    client = Client()
    client.force_login(superuser)
    return client


@pytest.fixture
def reader(transactional_db):
    """A staff member with all view permissions and no others."""
    person = factories.user(is_staff=True)
    person.user_permissions.add(*Permission.objects.filter(codename__startswith="view_"))
    client = Client()
    client.force_login(person)
    return client
