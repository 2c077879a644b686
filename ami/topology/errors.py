"""Errors of the topology: one sentence each, with the remedy."""

import difflib
from collections.abc import Iterable


class TopologyError(ValueError):
    """A row, an override or a queue name that contradicts itself or the table."""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return ``" Did you mean 'x'?"`` for the nearest known word, or an empty string."""
    near = difflib.get_close_matches(word, list(known), n=1)
    return f" Did you mean '{near[0]}'?" if near else ""
