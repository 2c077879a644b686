"""All URL paths of the web process, from its resolver, and the kind of row of their keys."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from django.urls import URLPattern, URLResolver, get_resolver

API = "/api/v2/"
#: As open as the schema is.
DOCUMENTATION = "/api/v2/docs/"
KEY = "{key}"


@dataclass(frozen=True)
class Address:
    """A URL path with ``{key}`` in place of its parameter; ``name`` is Django's name of it."""

    path: str
    name: str
    model: Any = None

    @property
    def kind(self) -> str:
        """The kind of row of the key in the API, such as ``captures/collections``."""
        return self.path.removeprefix(API).split(f"/{KEY}")[0]

    @property
    def has_key(self) -> bool:
        return KEY in self.path

    def of(self, key: Any) -> str:
        """Return the path with this key."""
        return self.path.replace(KEY, str(key))


def all_addresses() -> list[Address]:
    """Return every address, each once."""
    return list({address.path: address for address in _walk(get_resolver().url_patterns, "/")}.values())


def api_addresses() -> list[Address]:
    """Return those of the API; each view once, not again for each format."""
    views = [each for each in all_addresses() if each.path.startswith(API) and not each.path.endswith(".json")]
    return [each for each in views if each.path != DOCUMENTATION]


def admin_addresses() -> list[Address]:
    """Return those of the admin."""
    return [each for each in all_addresses() if each.path.startswith("/admin/")]


def other_addresses() -> list[Address]:
    """Return those of neither: `/`, health, metrics, and the page that draws the schema."""
    return [
        each for each in all_addresses() if not each.path.startswith((API, "/admin/")) or each.path == DOCUMENTATION
    ]


def _walk(patterns: list[Any], prefix: str) -> Iterator[Address]:
    for item in patterns:
        text = prefix + _plain(str(item.pattern))
        if isinstance(item, URLResolver):
            yield from _walk(item.url_patterns, text)
        elif isinstance(item, URLPattern):
            model = getattr(getattr(item.callback, "model_admin", None), "model", None)
            yield Address(text.replace("//", "/"), item.name or "", model)


def _plain(pattern: str) -> str:
    """Return a pattern, a route or an expression, as a path with ``{key}`` in place of each parameter."""
    text = pattern.removeprefix("^").replace("\\Z", "").replace("$", "")
    text = re.sub(r"<drf_format_suffix:\w+>", ".json", text)
    text = re.sub(r"\\\.\(\?P<format>.*?\)/\?", ".json", text)
    text = re.sub(r"\(\?P<\w+>[^)]*\)", KEY, text)
    text = re.sub(r"<(?:\w+:)?\w+>", KEY, text)
    return text.replace("\\.", ".").replace("?", "")
