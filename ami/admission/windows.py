"""How many calls of a queue are on the broker or run.

Few, so that a fair key waits for little, and enough to keep the workers busy until the next look.
"""

from dataclasses import dataclass

#: At least twice what the workers run at once: one runs, one is there when it ends.
LEAST, LEAST_FACTOR, MOST_FACTOR = 4, 2, 32
#: A window that workers empty in less time than this is doubled, one that takes them twice as long is halved.
SECONDS = 0.3


@dataclass
class Window:
    """The window of one queue: ``factor`` times the places of its workers, by how fast they ended what was sent."""

    factor: int = LEAST_FACTOR
    _active: int = 0
    _at: float = float("-inf")

    def size(self, places: int) -> int:
        return max(LEAST, self.factor * places)

    def look(self, active: int, places: int, now: float) -> bool:
        """Adapt to what has ended since the last look; return whether it is worth while to send.

        That is when a quarter is free, or half of a window that has grown: what is left of it lasts to the next look.
        """
        size, seconds = self.size(places), now - self._at
        ended = self._active - active
        if ended > 0:
            whole = seconds * size / ended
            if whole < SECONDS:
                self.factor = min(2 * self.factor, MOST_FACTOR)
            elif whole > 2 * SECONDS:
                self.factor = max(self.factor // 2, LEAST_FACTOR)
        self._active, self._at = active, now
        return active <= self.size(places) * (0.75 if self.factor == LEAST_FACTOR else 0.5)

    def sent(self, count: int) -> None:
        """Note what was sent at this look."""
        self._active += count
