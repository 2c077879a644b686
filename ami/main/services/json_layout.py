"""The layout of a JSON text: positions of its parts, found and bounded before parsing.

One compiled expression scans the tokens and records positions only. Long flat lists at known paths are matched in one
step and cut out, as are the items of one list. What remains of a part is its *skeleton*: small, with a placeholder for
each cut. A part is valid JSON if its skeleton and its cuts are.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import takewhile
from typing import TypeAlias

Text: TypeAlias = bytes | bytearray
Path: TypeAlias = tuple[str | int, ...]

KIB = 1024
MAX_LONG_ENTRIES = 100_000
"""Maximum entries of one long flat list; 29,176 classes were seen."""
MAX_SKELETON_BYTES = 4096 * KIB
"""Maximum bytes of one part without its cuts; parsing it takes a small multiple of this."""
MOST_SCANNED_DEPTH = 10_000
"""An item that is nested deeper ends the scan, because the scan keeps a key of each level."""
INLINE_BYTES = 512
"""A flat list of at most this size is not cut out, and not counted either."""

_STRING, _KEY, _OPEN, _CLOSE, _COMMA, _QUOTE = range(1, 7)
# The alternatives start with different characters and are possessive: no text makes this quadratic or recursive.
_TOKEN = re.compile(
    # Four million runs are more than a string of MAX_SKELETON_BYTES can have.
    rb'[^"\[\]{},]*+(?:("(?:[^"\\]++|\\.){0,4200000}+")(\s*+:)?+|([\[{])|([\]}])|(,)|(")|\Z)',
    re.DOTALL,
)
# A string in a flat list; bounded, so that decoding one entry is cheap.
_ENTRY = rb'"(?:[^"\\]{1,1020}+|\\.){0,1100}+"'
_ENTRY_TOKEN = re.compile(_ENTRY, re.DOTALL)
_OBJECT_TOKEN = re.compile(rb'\{(?:[^"{}\[\]]++|' + _ENTRY + rb")*+\}", re.DOTALL)
# Everything except escapes that no database stores: NUL and unpaired surrogates.
_STORABLE = re.compile(
    rb"(?:[^\\]++|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\(?!u0000|u[dD][89a-fA-F]).)*+", re.DOTALL
)


@dataclass(frozen=True)
class FlatList:
    """A kind of list that may be long: its pattern and the pattern of one entry."""

    name: str
    pattern: re.Pattern[bytes]
    entry: re.Pattern[bytes] | None = None

    def length(self, text: Text, start: int, end: int) -> int:
        """Return the number of entries, at most one more than ``MAX_LONG_ENTRIES``."""
        commas = text.count(b",", start, end)
        if self.entry is None or commas < MAX_LONG_ENTRIES and self is TEXTS:
            return commas + 1
        count = 0
        for count, _ in enumerate(self.entry.finditer(text, start, end), 1):  # noqa: B007
            if count > MAX_LONG_ENTRIES:
                break
        return count


NUMBERS = FlatList("numbers", re.compile(rb"\[[-+0-9.eE,\s]*+\]"))
TEXTS = FlatList("texts", re.compile(rb"\[(?:[\s,]++|" + _ENTRY + rb")*+\]", re.DOTALL), _ENTRY_TOKEN)
OBJECTS = FlatList(
    "objects", re.compile(rb"\[(?:[\s,]++|" + _OBJECT_TOKEN.pattern + rb")*+\]", re.DOTALL), _OBJECT_TOKEN
)

KINDS = {kind.name: kind for kind in (NUMBERS, TEXTS, OBJECTS)}

UNSTORABLE = "Holds a NUL character or an unpaired surrogate, which no database stores."

LongLists: TypeAlias = Mapping[Path, FlatList]
"""Paths of long flat lists, with 0 for every index."""


class LayoutError(ValueError):
    """A text that is over its bounds or not JSON; ``field`` is a dotted path."""

    def __init__(self, path: Path, message: str) -> None:
        super().__init__(message)
        self.field = ".".join(map(str, path)) or "body"


@dataclass(frozen=True)
class Bounds:
    """Limits of one part: ``elements`` are values without long flat lists, ``depth`` are nested containers."""

    elements: int
    depth: int


@dataclass
class Cut:
    """A range of text cut out of a part; ``kind`` is None for an item."""

    start: int
    end: int
    kind: FlatList | None = None


@dataclass
class Part:
    """One item, or everything outside the items; ``path`` is its place.

    ``wrong`` is where and how an item is over its bounds.
    """

    path: Path
    start: int
    end: int
    cuts: list[Cut] = field(default_factory=list)
    elements: int = 0
    wrong: tuple[Path, str] | None = None

    def skeleton_bytes(self) -> int:
        return self.end - self.start - sum(cut.end - cut.start for cut in self.cuts)


@dataclass
class Layout:
    """A text with its parts: ``outer`` and the ``items`` cut out of it, in order."""

    text: Text
    outer: Part
    items: list[Part]

    def skeleton(self, part: Part) -> bytes:
        """Return the part's text with ``placeholder(n)`` where its n-th cut was.

        Raises:
            LayoutError: it holds a character that no database stores.
        """
        pieces: list[bytes | memoryview] = []
        at = part.start
        with memoryview(self.text) as view:
            for number, cut in enumerate([*part.cuts, Cut(part.end, part.end)]):
                if (wrong := unstorable(self.text, at, cut.start)) is not None:
                    before = b"".join([*pieces, view[at:wrong]])
                    raise LayoutError((*part.path, *_path_at_the_end(before)), UNSTORABLE)
                pieces += [view[at : cut.start], b'"\\u0000%d"' % number]
                at = cut.end
            skeleton = b"".join(pieces[:-1])
            pieces.clear()
        return skeleton


def unstorable(text: Text, start: int, end: int) -> int | None:
    """Return the position of the first NUL or unpaired surrogate escape, None without one."""
    if text.find(b"\\u", start, end) < 0:
        return None
    found = _STORABLE.match(text, start, end)
    stop = found.end() if found else start
    return stop if stop < end else None


def cut_number(value: object) -> int | None:
    """Return n for ``placeholder(n)``, else None; a client's text cannot be one, because it must not hold NUL."""
    return int(value[1:]) if isinstance(value, str) and value.startswith("\x00") else None


def layout_of(text: Text, bounds: Bounds, long_lists: LongLists, items_in: str | None = None) -> Layout:
    """Scan the text once and return its layout; ``items_in`` names the list whose entries become parts.

    An item that is over the bounds keeps that as its ``wrong``.

    Raises:
        LayoutError: more elements, depth or bytes than the bounds, or an unterminated string or bracket.
    """
    walk = _Walk(text, bounds, long_lists, items_in)
    start = 0
    while start < len(text):
        start = walk.run(start)
    walk.finish()
    return Layout(text, walk.outer, walk.items)


class _Walk:
    """One scan of the tokens; ``stack`` has the current key or index of every open container."""

    def __init__(self, text: Text, bounds: Bounds, long_lists: LongLists, items_in: str | None) -> None:
        self.text, self.bounds, self.long_lists = text, bounds, long_lists
        self.items_in = items_in.encode() if items_in else None
        self.long_keys = {str(path[-1]).encode() for path in long_lists}
        self.stack: list[bytes | int | None] = []
        self.outer = self.part = Part((), 0, len(text))
        self.items: list[Part] = []

    def run(self, start: int) -> int:
        """Scan until a long list is skipped; return the position after it."""
        stack, end = self.stack, len(self.text)
        kind = _COMMA
        for token in _TOKEN.finditer(self.text, start):
            kind, before = token.lastindex or 0, kind
            if before == _STRING and kind in (_STRING, _KEY) or before == kind == _KEY:
                raise LayoutError(self._path(), "Invalid JSON: a string follows a string.")
            if kind == _KEY and stack:
                # No relevant key is longer, so a longer one is not copied.
                first, last = token.span(1)
                stack[-1] = token[1][1:-1] if last - first < 64 else b"..."
            elif kind == _COMMA and stack:
                if type(stack[-1]) is int:
                    stack[-1] += 1
                self._count()
            elif kind == _OPEN:
                if skipped := self._open(token.start(_OPEN)):
                    return skipped
            elif kind == _CLOSE and stack:
                self._close(token.end())
            elif kind in (_QUOTE, _CLOSE):
                raise LayoutError(self._path(), "Invalid JSON: a string or a bracket has no end.")
        return end

    def finish(self) -> None:
        if self.part is not self.outer:
            self.part.end = len(self.text)
            self._leave()
        self._measure(self.outer)

    def _open(self, at: int) -> int:
        stack = self.stack
        is_list = self.text[at] == 0x5B
        if is_list and stack and stack[-1] in self.long_keys and (end := self._skip(at)):
            return end
        if len(stack) == 2 and stack[0] == self.items_in and type(stack[1]) is int and self.part is self.outer:
            self.part = Part(self._path(), at, at)
            self.items.append(self.part)
        stack.append(0 if is_list else None)
        if (depth := len(stack) - len(self.part.path)) > self.bounds.depth and self.part.wrong is None:
            self._refuse(self._near(), f"Nested more than {self.bounds.depth} levels deep.")
        if depth > MOST_SCANNED_DEPTH:
            raise LayoutError(self._near(), f"Nested more than {MOST_SCANNED_DEPTH} levels deep.")
        self._count()
        return 0

    def _close(self, end: int) -> None:
        self.stack.pop()
        if self.part is not self.outer and len(self.stack) == 2:
            self.part.end = end
            self._leave()

    def _leave(self) -> None:
        self._measure(self.part)
        self.outer.cuts.append(Cut(self.part.start, self.part.end))
        self.part = self.outer

    def _count(self) -> None:
        self.part.elements += 1
        if self.part.elements > self.bounds.elements and self.part.wrong is None:
            message = f"More than {self.bounds.elements} elements, long lists of scores and labels not counted."
            self._refuse(self._near(), message)

    def _refuse(self, path: Path, message: str) -> None:
        """Keep what is wrong first with an item, so that the others are read; raise it for the text itself."""
        if self.part is self.outer:
            raise LayoutError(path, message)
        self.part.wrong = self.part.wrong or (path, message)

    def _skip(self, at: int) -> int:
        if self.items_in and self.part is self.outer:
            return 0
        path = tuple(0 if isinstance(key, int) else _name(key) for key in self.stack[len(self.part.path) :])
        kind = self.long_lists.get(path)
        found = kind and kind.pattern.match(self.text, at)
        if not kind or not found:
            return 0
        end = found.end()
        if end - at > INLINE_BYTES:
            if (length := kind.length(self.text, at, end)) > MAX_LONG_ENTRIES:
                message = f"List should have at most {MAX_LONG_ENTRIES} items after validation, not {length}"
                self._refuse(self._path(), message)
            self.part.cuts.append(Cut(at, end, kind))
        return end

    def _measure(self, part: Part) -> None:
        if part.skeleton_bytes() > MAX_SKELETON_BYTES:
            message = f"More than {MAX_SKELETON_BYTES} bytes, long lists of scores and labels not counted."
            self._refuse(part.path, message)

    def _path(self) -> Path:
        return _decoded(self.stack)

    def _near(self) -> Path:
        """Return the path for an error: the part's path and at most two keys inside it."""
        inside = _decoded(self.stack[len(self.part.path) :])
        return (*self.part.path, *takewhile(lambda key: isinstance(key, str), inside[:2]))


def _decoded(stack: list[bytes | int | None]) -> Path:
    return tuple(key if isinstance(key, int) else _name(key) for key in stack if key is not None)


def _name(key: bytes | None) -> str:
    return (key or b"").decode(errors="replace")


def _path_at_the_end(text: bytes) -> Path:
    """Return the path of the value at the end of a truncated text."""
    stack: list[bytes | int | None] = []
    for token in _TOKEN.finditer(text):
        kind = token.lastindex
        if kind == _KEY and stack:
            stack[-1] = token[1][1:-1][:64]
        elif kind == _COMMA and stack and isinstance(stack[-1], int):
            stack[-1] += 1
        elif kind == _OPEN:
            stack.append(0 if token[_OPEN] == b"[" else None)
        elif kind == _QUOTE:
            break
        elif kind == _CLOSE and stack:
            stack.pop()
    return _decoded(stack)
