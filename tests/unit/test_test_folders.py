"""What tests share is found in one place: a folder of tests imports from itself and from tests/support."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.imports import imports_of
from tests.support.place import ROOT

FOLDERS = sorted(path for path in (ROOT / "tests").iterdir() if path.is_dir() and not path.name.startswith("__"))
#: May be imported by everything in tests/ and by benchmarks/.
SHARED = "support"


def imports_from_tests(file: Path) -> Iterator[str]:
    """The folders of tests/ that a file imports from."""
    for node in imports_of(file):
        modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.module:
            modules = [f"{node.module}.{alias.name}" for alias in node.names]
        for module in modules:
            if module.startswith("tests."):
                yield module.split(".")[1]


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
def test_a_folder_imports_from_itself_and_from_support(folder: Path):
    allowed = {SHARED} if folder.name == SHARED else {SHARED, folder.name}
    found = {(str(file.relative_to(ROOT)), name) for file in folder.rglob("*.py") for name in imports_from_tests(file)}
    assert {(file, name) for file, name in found if name not in allowed} == set()


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
def test_what_is_shared_lies_in_support(folder: Path):
    """A folder of tests holds tests; ``attack`` and ``contract`` are programs."""
    if folder.name in (SHARED, "attack", "contract"):
        return
    modules = [path for path in folder.rglob("*.py") if not path.name.startswith(("test_", "conftest", "__init__"))]
    assert modules == []
