"""The wait before a retry: jittered, growing, bounded, and never below the server's Retry-After."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime


@dataclass(frozen=True)
class Backoff:
    """At most `attempts` tries; waits grow from `first_seconds` to `longest_seconds`, each jittered down to half."""

    attempts: int = 7
    first_seconds: float = 0.5
    longest_seconds: float = 20.0
    longest_asked_seconds: float = 120.0

    def wait_seconds(
        self, failures: int, retry_after: str | None, chance: Callable[[], float] = random.random
    ) -> float:
        """Return the wait after the `failures`-th failure (from 1); `retry_after` is the response's header."""
        grown = min(self.longest_seconds, self.first_seconds * 2.0 ** (failures - 1))
        jittered = grown * (0.5 + 0.5 * chance())
        asked = min(self.longest_asked_seconds, asked_seconds(retry_after))
        return max(jittered, asked)


def asked_seconds(retry_after: str | None) -> float:
    """Return the seconds of a Retry-After header (seconds or an HTTP date); 0 if missing or invalid."""
    if retry_after is None:
        return 0.0
    text = retry_after.strip()
    if text.isdigit():
        return float(text)
    try:
        moment = parsedate_to_datetime(text)
    except ValueError:
        return 0.0
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return max(0.0, (aware - datetime.now(UTC)).total_seconds())
