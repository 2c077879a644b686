"""The private names of Celery, kombu, billiard and amqp: each is listed, and the installed versions have it."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from ami import celery_internals
from ami.celery_internals import CHECKED, INTERNALS, Internal, missing

ROOT = Path(__file__).parents[3]
LIBRARIES = frozenset(CHECKED)
#: Private by name only: documented by the standard library and by Django.
DOCUMENTED = {"_meta", "_state", "_exit", "_current_frames"}
NAMES = {internal.name for internal in INTERNALS}
MODULES = [path for path in sorted(ROOT.glob("ami/**/*.py")) if path.name != "celery_internals.py"]


def test_installed_versions_have_every_internal() -> None:
    assert missing() == [], "\n".join(missing())


def test_missing_internal_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    from celery.worker.request import Request

    monkeypatch.delattr(Request, "_retry_worker_lost")
    assert missing() == [
        "celery.worker.request.Request has no '_retry_worker_lost', which ami.celery.request needs to retry a task "
        "that was ended: it was checked against celery 5.7.0; 5.7.0 is installed."
    ]


@pytest.mark.parametrize("owner", ["kombu.elsewhere:Consumer", "kombu.messaging:Elsewhere", "kombu.messaging:Consumer"])
def test_internal_that_moved_is_missing(owner: str) -> None:
    (sentence,) = missing([Internal(owner, "_renamed", "ami.some.module", "work")])
    assert sentence.startswith(f"{owner.replace(':', '.')} has no '_renamed', which ami.some.module needs to work")


def test_checked_versions_are_the_pinned_ones() -> None:
    pinned = dict(re.findall(r"^([a-z-]+)==([\w.]+)", (ROOT / "requirements/base.txt").read_text(), re.M))
    assert {name: pinned[name.replace("_", "-")] for name in CHECKED} == CHECKED


def test_listed_internals_are_used_where_the_table_says() -> None:
    attributes = {name: _attributes(node) for name, node in _accessors().items()}
    unused = []
    for internal in INTERNALS:
        text = (ROOT / f"{internal.used_by.replace('.', '/')}.py").read_text()
        used = re.findall(r"celery_internals\.(\w+)", text)
        accessors = {name for name, found in attributes.items() if internal.name in found}
        if not re.search(rf"\b{internal.name}\b", text) and not accessors & set(used):
            unused.append(internal)
    assert unused == []


def test_no_module_uses_a_private_name_that_is_not_listed() -> None:
    found = {str(path.relative_to(ROOT)): list(_unlisted(path.read_text())) for path in MODULES}
    assert {path: names for path, names in found.items() if names} == {}


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("job._accepted = True", ["job._accepted"]),
        ("busy = pool._busy_workers", ["pool._busy_workers"]),
        ('vars(child).get("_sentinel_poll")', ["'_sentinel_poll'"]),
        ('getattr(pool, "_pool")', ["'_pool'"]),
        ("self._unknown()", ["self._unknown"]),
        ("self._queues", []),
        ("super()._publish()", []),
        ("super()._elsewhere()", ["super()._elsewhere"]),
        ("celery_internals.jobs(pool)", []),
    ],
)
def test_scan_finds_private_names_on_foreign_objects(line: str, found: list[str]) -> None:
    assert list(_unlisted(f"import celery\n{line}\n")) == found


def _unlisted(text: str) -> Iterator[str]:
    """Yield the private names of foreign objects that a module spells itself.

    A module that imports none of the libraries has no such objects. A listed name is spelled only in the class that
    overrides or inherits it (``self``, ``super()``), or on a class that is patched (``Message._load_properties``). A
    name that is not listed must be defined in the module, or in one of the project's that it imports.
    """
    tree = ast.parse(text)
    imported = _imported(tree)
    if not any(name.split(".")[0] in LIBRARIES or name.startswith("ami.celery") for name in imported):
        return
    own = _defined(tree).union(*map(_defined_in, _own_files(imported)))
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and _is_private(node.attr):
            receiver = ast.unparse(node.value)
            may_be_listed = receiver in ("self", "cls", "super()") or receiver[0].isupper()
            if node.attr in NAMES and not may_be_listed or node.attr not in NAMES | own:
                yield ast.unparse(node)
        elif isinstance(node, ast.Constant) and node.value in NAMES and _is_private(str(node.value)):
            yield repr(node.value)


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name not in DOCUMENTED


def _imported(tree: ast.Module) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return names


def _own_files(imported: set[str]) -> list[Path]:
    paths = [ROOT / f"{name.replace('.', '/')}.py" for name in imported if name.startswith("ami.")]
    return [path for path in paths if path.exists() and path.name != "celery_internals.py"]


@cache
def _defined_in(path: Path) -> set[str]:
    return _defined(ast.parse(path.read_text()))


def _defined(tree: ast.Module) -> set[str]:
    """Return the private names that a module defines: functions, classes, variables and attributes of ``self``."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            names |= {node.attr} if ast.unparse(node.value) in ("self", "local") else set()
    return names


def _accessors() -> dict[str, ast.FunctionDef]:
    tree = ast.parse(Path(celery_internals.__file__).read_text())
    return {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}


def _attributes(function: ast.FunctionDef) -> set[str]:
    attributes = {node.attr for node in ast.walk(function) if isinstance(node, ast.Attribute)}
    return attributes | {node.value for node in ast.walk(function) if isinstance(node, ast.Constant)}
