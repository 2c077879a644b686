"""The page of the handbook: docs/operations.md, with an anchor for every heading and every finding."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.safestring import SafeString, mark_safe
from django.views.decorators.http import require_GET
from markdown_it import MarkdownIt
from markdown_it.token import Token

from ami.console import list_page

#: The name of a finding, or the id of a check, as the first cell of a row.
_NAME = re.compile(r"[a-z]+(?:-[a-z]+)*|[a-z]+\.[EW]\d{3}")
_NO_SLUG = re.compile(r"[^\w\- ]")


@dataclass(frozen=True)
class Handbook:
    """``chapters`` are (anchor, title) of the second level; ``findings`` are the names that have an anchor."""

    html: SafeString
    chapters: tuple[tuple[str, str], ...]
    findings: frozenset[str]


@require_GET
def show(request: HttpRequest) -> HttpResponse:
    """Show the handbook; it holds no secret, so every staff member may read it."""
    path = source()
    book = handbook(path, path.stat().st_mtime_ns) if path.is_file() else None
    return list_page.page(request, "handbook", "Handbook", {"book": book})


def source() -> Path:
    return Path(__file__).resolve().parents[2] / "docs" / "operations.md"


def finding_address(name: str) -> str:
    """Return where the handbook explains a finding of ``queues check --live``."""
    return f"{reverse('console:handbook')}#finding-{name}"


@lru_cache(maxsize=1)
def handbook(path: Path, _: int) -> Handbook:
    """Return the rendered file; the second argument is its time, so that a changed file is rendered again."""
    parser = MarkdownIt("commonmark", {"html": False}).enable("table")
    tokens = parser.parse(path.read_text(encoding="utf-8"))
    chapters = tuple(_headings(tokens))
    findings = frozenset(_findings(tokens))
    for token in tokens:
        # The policy of pages allows no styles in attributes.
        token.attrs.pop("style", None)
        _keep_local_links(token)
    html = parser.renderer.render(tokens, parser.options, {})
    return Handbook(mark_safe(html), chapters, findings)  # noqa: S308 - rendered from the image's file, HTML disabled


def _headings(tokens: list[Token]) -> Iterator[tuple[str, str]]:
    """Give every heading the anchor that links in the file use, and yield those of the second level."""
    seen: dict[str, int] = {}
    for token, following in zip(tokens, tokens[1:], strict=False):
        if token.type != "heading_open":
            continue
        title = "".join(child.content for child in following.children or ())
        slug = _NO_SLUG.sub("", title.lower()).replace(" ", "-")
        seen[slug] = seen.get(slug, -1) + 1
        anchor = f"{slug}-{seen[slug]}" if seen[slug] else slug
        token.attrSet("id", anchor)
        if token.tag == "h2":
            yield anchor, title


def _findings(tokens: list[Token]) -> Iterator[str]:
    """Give the rows of the tables of findings and checks an anchor each, and yield their names."""
    is_open, seen = False, set[str]()
    for number, token in enumerate(tokens):
        if token.type == "heading_open" and token.tag == "h2":
            is_open = "queues-check---live" in str(token.attrGet("id"))
        if not is_open or token.type != "tr_open" or number + 2 >= len(tokens):
            continue
        cell = tokens[number + 2].children or []
        if len(cell) == 1 and cell[0].type == "code_inline" and _NAME.fullmatch(cell[0].content):
            name = cell[0].content
            if name not in seen:
                seen.add(name)
                token.attrSet("id", f"finding-{name}")
                yield name


def _keep_local_links(token: Token) -> None:
    """Turn links to files beside this one into text: the image holds this file alone."""
    left: list[Token] = []
    is_dropped = False
    for child in token.children or ():
        if child.type == "link_open" and not str(child.attrGet("href")).startswith(("#", "http:", "https:")):
            is_dropped = True
        elif child.type == "link_close" and is_dropped:
            is_dropped = False
        else:
            left.append(child)
    if token.children:
        token.children = left
