"""Fixtures of the security tests: two unrelated users, each with a project."""

from typing import Any

import pytest
from django.core.cache import cache

from tests.support.product.tenants import Tenant, tenant


@pytest.fixture(autouse=True)
def folders(tmp_path, settings):
    cache.clear()
    for name in ("static", "media"):
        (tmp_path / name).mkdir()
    settings.STATIC_ROOT, settings.MEDIA_ROOT = str(tmp_path / "static"), str(tmp_path / "media")


@pytest.fixture
def mine(db) -> Tenant:
    return tenant("mine")


@pytest.fixture
def theirs(db) -> Tenant:
    return tenant("theirs")


@pytest.fixture(autouse=True)
def published(monkeypatch, request):
    """The messages that would be published; none leaves the process."""
    messages: list[tuple[str, dict[str, Any]]] = []
    if "place" not in request.fixturenames:
        from celery.app.task import Task

        monkeypatch.setattr(Task, "apply_async", lambda task, **options: messages.append((task.name, options)))
    return messages
