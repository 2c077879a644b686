"""What the code imports is what is pinned: on a new machine nothing else is there."""

import ast
import functools
import re
import sys
from collections.abc import Mapping
from importlib.metadata import packages_distributions

import pytest

from provision import installation
from provision.installation import SETS
from tests.support.imports import imports_of
from tests.support.place import ROOT

#: Which pins hold for which folders.
PINNED = {
    "production": ("ami", "config"),
    "processing": ("processing_service",),
    "run": ("demo", "provision", "processing_service"),
    "local": ("ami", "config", "demo", "provision", "benchmarks", "examples", "processing_service", "tests"),
}
OURS = {"ami", "config", "demo", "examples", "provision", "benchmarks", "processing_service", "tests", "manage"}

#: What an image has beside its pins: code of another folder that it copies, and what is asked for only if it is there.
ELSEWHERE = {"smoke_tasks"}


@functools.cache
def imported(folder: str) -> dict[str, str]:
    """Each third party's module that is imported below ``folder``, and a file that does."""
    found = {}
    for path in (ROOT / folder).rglob("*.py"):
        for node in imports_of(path):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and not node.level and node.module:
                names = [node.module]
            found |= {name.partition(".")[0]: str(path.relative_to(ROOT)) for name in names}
    return {name: path for name, path in found.items() if name not in sys.stdlib_module_names | OURS | ELSEWHERE}


@functools.cache
def owners_of_modules() -> Mapping[str, list[str]]:
    """Read the metadata of every installed distribution, which takes seconds."""
    return packages_distributions()


@functools.cache
def pins(name: str) -> set[str]:
    """Return the packages of a file, or of the files of a set that `make` installs."""
    files = SETS.get(name, (name,))
    return {package for file in files for package in installation.pins((ROOT / f"requirements/{file}.txt").read_text())}


@pytest.mark.parametrize(("name", "folder"), [(name, folder) for name, folders in PINNED.items() for folder in folders])
def test_every_import_is_pinned(name: str, folder: str):
    """A module that lay on one machine by chance was missed, in silence, on every other."""
    distributions = owners_of_modules()
    for module, path in imported(folder).items():
        owners = {re.sub(r"[-_.]+", "-", owner).lower() for owner in distributions.get(module, [])}
        assert owners & pins(name), f"{path} imports {module}; requirements/{name}.txt pins nothing that holds it"
