"""The pauses after dead-letter queues refused: without them, each acknowledgement would write the letters again."""

import time

#: The pause after the first refusal, and the longest; each is twice the one before.
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 1.0, 30.0


class RefusedLetters:
    """The dead-letter queues that refused a letter of this process, each with the end of its pause."""

    def __init__(self) -> None:
        self._pauses: dict[str, tuple[float, float]] = {}

    def is_pausing(self, target: str) -> bool:
        """Whether nothing is to be stored there yet."""
        return target in self._pauses and time.monotonic() < self._pauses[target][0]

    def refused(self, target: str) -> float:
        """Begin a pause; return its length in seconds."""
        _, before = self._pauses.get(target, (0.0, 0.0))
        pause = min(2 * before, LONGEST_PAUSE_SECONDS) or FIRST_PAUSE_SECONDS
        self._pauses[target] = time.monotonic() + pause, pause
        return pause

    def accepted(self, target: str) -> None:
        self._pauses.pop(target, None)
