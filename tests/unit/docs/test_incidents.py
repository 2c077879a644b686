"""The documents name only things that exist: tests, links, make targets, commands, findings."""

import argparse
import re
from pathlib import Path
from typing import Any

import pytest
from django.core.management.base import CommandParser

from ami.queues.management.commands.queues import Command

ROOT = Path(__file__).resolve().parents[3]
DOCUMENTS = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")),
    *(ROOT / "docs").rglob("*.md"),
]
INCIDENTS = (ROOT / "docs" / "incidents.md").read_text()
OPERATIONS = (ROOT / "docs" / "operations.md").read_text()

ROW = re.compile(r"^\| (I|H)(\d+) \| [^|]+ \| (impossible|open) \| (.+) \|$", re.MULTILINE)
NAMED_TEST = re.compile(r"`([\w/]+\.py)::(\w+)`")
LINK = re.compile(r"\]\((?!https?:)([^)\s]*)\)")


@pytest.mark.parametrize(("letter", "count"), [("I", 47), ("H", 12)])
def test_every_incident_is_listed_once(letter: str, count: int) -> None:
    rows = [int(number) for kind, number, _, _ in ROW.findall(INCIDENTS) if kind == letter]
    assert rows == list(range(1, count + 1))


def test_every_impossible_incident_names_a_test() -> None:
    bare = [f"{kind}{number}" for kind, number, status, how in ROW.findall(INCIDENTS)
            if status == "impossible" and not NAMED_TEST.search(how)]  # fmt: skip
    assert bare == []


@pytest.mark.parametrize(("path", "name"), sorted(set(NAMED_TEST.findall(INCIDENTS))))
def test_every_named_test_exists(path: str, name: str) -> None:
    file = ROOT / "tests" / path
    assert file.is_file(), f"tests/{path} does not exist"
    assert re.search(rf"^def {name}\(", file.read_text(), re.MULTILINE), f"{name} is not in tests/{path}"


def anchors(document: Path) -> set[str]:
    """The anchors that a code forge makes of a document's headings."""
    headings = re.findall(r"^#+ (.+)$", document.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_relative_links_lead_somewhere(document: Path) -> None:
    for target in LINK.findall(document.read_text()):
        path, _, anchor = target.partition("#")
        file = (document.parent / path).resolve() if path else document
        assert file.exists(), target
        if anchor:
            assert anchor in anchors(file), target


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_make_target_exists(document: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"(?:^|`)make ([a-z-]+)", document.read_text(), re.MULTILINE)) <= targets


def verbs() -> dict[str, argparse.ArgumentParser]:
    parser = CommandParser()
    Command().add_arguments(parser)
    return next(dict(action.choices) for action in parser._actions if isinstance(action, argparse._SubParsersAction))


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_queues_subcommand_and_option_exists(document: Path) -> None:
    known = verbs()
    for verb, rest in re.findall(r"manage\.py queues ([a-z-]+)([^`#\n]*)", document.read_text()):
        assert verb in known, verb
        options = {option for parser in _parsers(known[verb], rest) for option in _options(parser)}
        assert set(re.findall(r"--[a-z-]+", rest)) <= options, f"queues {verb}{rest}"


def _parsers(parser: Any, rest: str) -> list[Any]:
    """Return a verb's parser, and that of its own verb where it has some, as `letters` has."""
    nested = [action.choices for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    return [parser, *(choices[rest.split()[0]] for choices in nested if rest.split())]


def _options(parser: Any) -> set[str]:
    return {option for action in parser._actions for option in action.option_strings}


def test_every_finding_and_check_has_a_row_in_operations() -> None:
    queues = ROOT / "ami" / "queues"
    telemetry = ROOT / "ami" / "telemetry"
    nats = ROOT / "ami" / "jobs" / "services" / "nats_findings.py"
    bucket = ROOT / "ami" / "main" / "services" / "bucket_findings.py"
    paths = [*(queues / "diagnostics").glob("*.py"), queues / "letters" / "watch.py", nats, bucket]
    paths += [telemetry / name for name in ("findings.py", "promise_findings.py", "alerts/receiver_findings.py")]
    sources = [path.read_text() for path in paths]
    # Each is written where it is found; a name that depends on the queue is put into a variable first.
    found = r'(?:Finding(?:Figures)?\(\s*[^,]+,\s*|name, why = |Sign\()"([a-z-]+)"'
    names = {name for source in sources for name in re.findall(found, source)}
    assert names
    table = OPERATIONS.partition("## What `queues check --live` finds")[2]
    assert set(re.findall(r"^\| `([a-z-]+)` \|", table, re.MULTILINE)) == names
    checks = set(re.findall(r'id="(queues\.[EW]\d+)"', (ROOT / "ami" / "queues" / "checks.py").read_text()))
    assert set(re.findall(r"^\| `(queues\.[EW]\d+)` \|", table, re.MULTILINE)) == checks


def test_index_lists_every_page_and_decision() -> None:
    docs = ROOT / "docs"
    pages = {path.relative_to(docs).as_posix() for folder in (docs, docs / "decisions") for path in folder.glob("*.md")}
    assert set(LINK.findall((docs / "README.md").read_text())) == pages - {"README.md"}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_path_in_backticks_exists(document: Path) -> None:
    paths = re.findall(r"`((?:ami|config|tests|demo|provision|processing_service)/[\w/.]+)`", document.read_text())
    assert [path for path in paths if not (ROOT / path).exists()] == []
