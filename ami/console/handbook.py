"""The handbook: docs/operations.md and the documents that it links to, with an anchor for every heading and finding."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from django.http import Http404, HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.safestring import SafeString, mark_safe
from django.views.decorators.http import require_GET
from markdown_it import MarkdownIt
from markdown_it.token import Token

from ami.console import list_page

DOCS = Path(__file__).resolve().parents[2] / "docs"
START = "operations"
#: The name of a finding, or the id of a check, as the first cell of a row.
_NAME = re.compile(r"[a-z]+(?:-[a-z]+)*|[a-z]+\.[EW]\d{3}")
_NO_SLUG = re.compile(r"[^\w\- ]")


@dataclass(frozen=True)
class Handbook:
    """``chapters`` are (anchor, title) of the second level; ``findings`` are the names that have an anchor."""

    html: SafeString
    title: str
    chapters: tuple[tuple[str, str], ...]
    findings: frozenset[str]


@require_GET
def show(request: HttpRequest, name: str = START) -> HttpResponse:
    """Show a page of the documentation; it holds no secret, so every staff member may read it."""
    path = source(name)
    if path is None and name != START:
        raise Http404("There is no such page of the documentation.")
    book = handbook(path, path.stat().st_mtime_ns) if path else None
    context = {"book": book, "is_start": name == START}
    return list_page.page(request, "handbook", book.title if book else "Handbook", "handbook", context)


def source(name: str = START) -> Path | None:
    """Return the file of a page such as ``decisions/0026-...``; None where the documentation has none."""
    path = (DOCS / f"{name}.md").resolve()
    return path if path.is_relative_to(DOCS) and path.is_file() else None


@lru_cache(maxsize=16)
def handbook(path: Path, _: int) -> Handbook:
    """Return the rendered file; the second argument is its time, so that a changed file is rendered again."""
    parser = MarkdownIt("commonmark", {"html": False}).enable("table")
    tokens = parser.parse(path.read_text(encoding="utf-8"))
    chapters = tuple(_headings(tokens))
    findings = frozenset(_findings(tokens))
    for token in tokens:
        # The policy of pages allows no styles in attributes.
        token.attrs.pop("style", None)
        if token.children:
            token.children = list(_with_links(token.children, path))
    # The page has a title of its own.
    title = tokens[1].content if len(tokens) > 2 and tokens[0].tag == "h1" else path.stem
    shown = tokens[3:] if len(tokens) > 2 and tokens[0].tag == "h1" else tokens
    html = parser.renderer.render(shown, parser.options, {})
    return Handbook(mark_safe(html), title, chapters, findings)  # noqa: S308 - a file of the image, HTML disabled


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
    """Give the rows of the tables of findings and checks an anchor each, which is the name, and yield their names.

    A heading of that name says more, and keeps it.
    """
    headings = {token.attrGet("id") for token in tokens if token.type == "heading_open"}
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
                if name not in headings:
                    token.attrSet("id", name)
                yield name


def _with_links(children: list[Token], path: Path) -> Iterator[Token]:
    """Let links lead to the pages of other documents, and turn those to files that are no document into text."""
    is_dropped = False
    for child in children:
        if child.type == "link_open":
            address = _address(str(child.attrGet("href")), path)
            child.attrSet("href", address)
            is_dropped = not address
        if not (is_dropped and child.type in ("link_open", "link_close")):
            yield child
        if child.type == "link_close":
            is_dropped = False
        if child.type == "image":
            child.type, child.tag, child.attrs, child.children = "text", "", {}, None


def _address(href: str, path: Path) -> str:
    """Return where a link of a document leads; empty where the image does not have what it names."""
    if href.startswith(("#", "https://", "http://")):
        return href
    name, _, anchor = href.partition("#")
    target = (path.parent / name).resolve()
    if not (target.is_relative_to(DOCS) and target.suffix == ".md" and target.is_file()):
        return ""
    page = str(target.relative_to(DOCS).with_suffix(""))
    address = reverse("console:handbook") if page == START else reverse("console:handbook_page", args=[page])
    return f"{address}#{anchor}" if anchor else address
