"""The import statements of a file, wherever they stand in it."""

import ast
from collections.abc import Iterator
from pathlib import Path


def imports_of(file: Path) -> Iterator[ast.Import | ast.ImportFrom]:
    """Find them among the statements alone: expressions, which are most of a tree, hold none."""
    waiting: list[ast.AST] = [ast.parse(file.read_bytes())]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node
        for block in ("body", "orelse", "finalbody", "handlers", "cases"):
            inside = getattr(node, block, [])
            waiting += inside if isinstance(inside, list) else []
