"""What every test may use: services from the environment, a virtual host of its own, and real worker processes."""

import gc
import os
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import settings

from tests.support import file_seconds, migrated_database, parts, services
from tests.support.examples import examples
from tests.support.failures import left_running
from tests.support.place import RABBITMQ, Place, new_place


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let `make test` run the suite in parts."""
    parser.addoption("--part", default="", help=f"run the tests of these parts only, of {','.join(parts.PARTS)}")


def pytest_configure(config: pytest.Config) -> None:
    """Refuse an unknown part; watch for processes where they are not allowed; let no example be timed."""
    settings.register_profile("antenna", examples(50, 500))
    settings.load_profile("antenna")
    unknown = _wanted(config) - set(parts.PARTS)
    if unknown:
        raise pytest.UsageError(f"--part: {', '.join(sorted(unknown))} is not one of {', '.join(parts.PARTS)}")
    if part := config.getoption("--part"):
        file_seconds.register(config, part)
    if parts.FAST in _wanted(config):
        watch = parts.NoProcesses()
        config.pluginmanager.register(watch)
        watch.install()


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[Any]:
    """Keep the garbage collector from the imported modules and collected tests: none becomes garbage, and each full
    collection would look at them again.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the wanted parts, acceptance tests first. Without services skip what needs them, loudly; in CI it fails."""
    if wanted := _wanted(config):
        config.hook.pytest_deselected(items=parts.select(items, wanted))
    # The longest files first, so that no process is left with one at the end; pytest-django's order stays otherwise.
    items.sort(key=lambda item: "/acceptance/" not in item.path.as_posix())
    missing = services.missing()
    if not missing or os.environ.get("CI"):
        return
    reason = f"needs {', '.join(missing)}: run through `make test`"
    for item in items:
        if parts.parts_of(item) <= {parts.SERVICES, parts.ALONE} and "/unit/" not in item.path.as_posix():
            item.add_marker(pytest.mark.skip(reason=reason))


def _wanted(config: pytest.Config) -> set[str]:
    return {name for name in config.getoption("--part").split(",") if name}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[Any]:
    """Show with a failure what it left running and where the logs are."""
    report = yield
    if report.failed and (left := left_running(item.nodeid)):
        report.sections.append(("Left running", left))
    return report


@pytest.fixture(scope="session", autouse=True)
def migrated_once(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Let the processes of a run in parallel migrate one test database between them."""
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        migrated_database.share(folder.parent)
    elif migrated_database.VARIABLE in os.environ:
        migrated_database.share(folder)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """After a run in parallel remove the database that its processes copied."""
    if session.config.pluginmanager.has_plugin("dsession"):
        migrated_database.drop_template()


@pytest.fixture
def place(request: pytest.FixtureRequest):
    """A broker of this test's own, and the worker processes it starts there: a virtual host of RabbitMQ, or what the
    test is parametrised with (indirectly, ``tests.support.place.BROKERS``).
    """
    with new_place(request.node.name, getattr(request, "param", RABBITMQ)) as made:
        yield made


@pytest.fixture
def database_place(place: Place, transactional_db):
    """A place whose worker processes use this run's test database."""
    place.use_test_database()
    return place


@pytest.fixture(scope="session", autouse=True)
def audit_log_and_causes_only_with_a_database() -> Iterator[None]:
    """Let tests without a database run operations: entries in the audit log and causes of letters are left out."""
    from django.db.backends.base.base import BaseDatabaseWrapper

    from ami.queues import audit_log, failures

    write, latest = audit_log._write, failures.latest

    def is_allowed() -> bool:
        return BaseDatabaseWrapper.ensure_connection.__name__ != "_blocking_wrapper"  # pytest-django's.

    def write_where_allowed(row: Any) -> None:
        if is_allowed():
            write(row)

    def latest_where_allowed(task_ids: Any) -> Any:
        return latest(task_ids) if is_allowed() else {}

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(audit_log, "_write", write_where_allowed)
        patch.setattr(failures, "latest", latest_where_allowed)
        yield
