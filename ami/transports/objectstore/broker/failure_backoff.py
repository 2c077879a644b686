"""Pauses between the connections of a worker whose storage fails as soon as it consumes."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from ami.transports.objectstore.storage.errors import StorageError

#: The pause after the second failure in a row, and the longest; each is twice the one before.
FIRST_SECONDS, LONGEST_SECONDS = 0.5, 8.0

#: A failure so long after the one before is a first one.
FORGOTTEN_SECONDS = 60.0


class FailureBackoff:
    """Refuses connections for a while after failures; Celery and kombu then wait, and try again.

    Connecting reads little, so it succeeds on a storage that takes no writes: without a pause a worker would connect
    and fail many times a second. The first failure costs nothing.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._failures = 0
        self._failed_at = self._until = 0.0
        self._reason = ""

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Count a StorageError that is raised inside."""
        try:
            yield
        except StorageError as error:
            self.failed(error)
            raise

    def failed(self, error: StorageError) -> None:
        with self._lock:
            now = time.monotonic()
            if now < self._until:
                return
            self._failures = 1 if now - self._failed_at > FORGOTTEN_SECONDS else self._failures + 1
            self._failed_at, self._reason = now, str(error)
            if self._failures > 1:
                self._until = now + min(FIRST_SECONDS * 2 ** min(self._failures - 2, 10), LONGEST_SECONDS)

    def check(self) -> None:
        """Raise StorageError, with the sentence of the last failure, while it is too early to connect again."""
        if time.monotonic() < self._until:
            raise StorageError(self._reason)
