"""Fixtures of the console's tests."""

import pytest

from ami.queues import governors
from tests.support import console
from tests.support.console import nothing_rendered  # noqa: F401


@pytest.fixture(autouse=True)
def folders(tmp_path, settings):
    (tmp_path / "static").mkdir()
    settings.STATIC_ROOT = str(tmp_path / "static")


@pytest.fixture(autouse=True)
def no_workers(monkeypatch):
    """No worker runs: nothing waits long for answers of one."""
    monkeypatch.setattr(governors, "INSPECT_SECONDS", 0.1)


@pytest.fixture
def figures(monkeypatch, nothing_rendered):  # noqa: F811
    """The snapshot that the pages show."""
    found = console.snapshot()
    console.show(monkeypatch, found)
    return found


@pytest.fixture
def operator(db):
    return console.client_of(is_superuser=True)


@pytest.fixture
def viewer(db):
    return console.client_of()
