"""Fixtures of the core's tests."""

import pytest
from django.core.cache import cache
from rest_framework.test import APIClient

from tests.support.product import factories


@pytest.fixture(autouse=True)
def fresh_cache():
    """Clear the cache, in which throttles count."""
    cache.clear()


@pytest.fixture(autouse=True)
def folders(tmp_path, settings):
    """Static and media files of the test's own; WhiteNoise warns about a static folder that does not exist."""
    for name in ("static", "media"):
        (tmp_path / name).mkdir()
    settings.STATIC_ROOT, settings.MEDIA_ROOT = str(tmp_path / "static"), str(tmp_path / "media")


@pytest.fixture
def owner(db):
    return factories.user(name="Owner")


@pytest.fixture
def project(owner):
    return factories.project(owner=owner)


@pytest.fixture
def client(owner):
    """The API as the project's owner sees it."""
    client = APIClient()
    client.force_authenticate(owner)
    return client
