"""The pauses between a writer's tries against faster writers."""

import random
from collections.abc import Iterator

#: The longest of the first pause, and of all; each bound is twice the one before.
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.005, 0.32


def pauses_seconds() -> Iterator[float]:
    """Yield random pauses up to a growing bound, so that writers do not collide again."""
    pause = FIRST_PAUSE_SECONDS
    while True:
        yield pause * random.random()  # noqa: S311 - not a secret
        pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
