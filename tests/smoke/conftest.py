"""Fixtures of the tests in containers: an engine, or a loud word that there is none, and the deployment."""

from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.containers import engine as engines
from tests.support.containers import reports
from tests.support.containers.deployment import FILES, Deployment, build, frugal, new_variables, with_own_tasks
from tests.support.containers.effects import Effects
from tests.support.containers.load import end_publishers
from tests.support.place import ROOT

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Without an engine: skip these tests, or fail where one was brought up for them."""
    mine = [item for item in items if HERE in item.path.parents]
    if mine and (why := engines.missing()):
        if engines.is_required():
            raise pytest.UsageError(f"{engines.REQUIRED} is set, and no container can be started: {why}")
        for item in mine:
            item.add_marker(pytest.mark.skip(reason=f"NO CONTAINER ENGINE: {why}"))
    # The deployment lasts until the end: what does without it goes first, and does not run beside it.
    places = [number for number, item in enumerate(items) if HERE in item.path.parents]
    ordered = sorted(mine, key=lambda item: "deployment" in getattr(item, "fixturenames", ()))
    for number, item in zip(places, ordered, strict=True):
        items[number] = item


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
    """Show what the containers were doing when a test failed, and keep their whole logs."""
    report = yield
    if report.failed and (found := reports.containers()):
        reports.save(item.name, found)
        report.sections.append((f"containers; whole logs: {reports.FOLDER.name}", reports.text(found)))
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say loudly when nothing of this ran: green then says nothing of images, compose files and failures there."""
    left_out = [one for one in terminalreporter.stats.get("skipped", []) if "NO CONTAINER ENGINE" in str(one.longrepr)]
    if left_out:
        terminalreporter.section("THE CONTAINER TESTS DID NOT RUN", sep="!", red=True, bold=True)
        terminalreporter.line(
            f"{len(left_out)} tests: {engines.missing()}. Images, compose files and failures are untested."
        )


@pytest.fixture(scope="session")
def images() -> None:
    """Every image of this checkout, built once."""
    build()


@pytest.fixture(scope="session")
def deployment(images: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """The whole deployment on one machine, built and healthy, with the tests' own tasks in its workers."""
    folder, files = tmp_path_factory.mktemp("deployment"), [*(ROOT / name for name in FILES), ROOT / "compose/demo.yml"]
    made = Deployment(folder, new_variables(), files=files)
    made.files = [*files, with_own_tasks(folder, changes=frugal(made.declared))]
    try:
        made.up(timeout=900)
        yield made
    finally:
        end_publishers()
        made.down()
        left = made.left()
        made.down("--volumes")
    assert left["containers"] == left["networks"] == [], "`down` leaves nothing"
    assert left["volumes"], "but its data"
    assert made.left()["volumes"] == [], "until it is told to"


@pytest.fixture(scope="session")
def effects(deployment: Deployment) -> Iterator[Effects]:
    """What the tests' own tasks did on the deployment."""
    with Effects(deployment.database_url) as made:
        yield made
