"""Keeps a folder's journal from accepting messages that nothing could read: remembers damage, and refuses."""

import logging
from contextlib import suppress
from pathlib import Path

from ami.transports.objectstore.journal import damage
from ami.transports.objectstore.journal.place import Place
from ami.transports.objectstore.journal.segments import Segments
from ami.transports.objectstore.journal.snapshots import Snapshots
from ami.transports.objectstore.journal.tail import Tail, flagged
from ami.transports.objectstore.storage.errors import DamageError

log = logging.getLogger(__name__)


class DamageGuard:
    """The marker in a queue's folder, and the flag in its tail, which every writer reads before it writes."""

    def __init__(self, folder: Path, place: Place, segments: Segments, snapshots: Snapshots) -> None:
        self._folder = folder
        self._place = place
        self._segments = segments
        self._snapshots = snapshots

    def refusal(self, boot: bytes) -> DamageError | None:
        """Return why no message is accepted; None where no damage was found. Costs one read of 16 bytes."""
        if self._place.boot_of_tail() != flagged(boot) or not self._place.is_there():
            return None
        return self._refused()

    def _refused(self) -> DamageError:
        return damage.refused(self._folder, damage.read_marker(self._folder) or f"{self._folder} is damaged")

    def verify(self, tail: Tail, boot: bytes, is_first: bool) -> None:
        """Before a batch is appended without reading: check its tail, and before the first one all that is quick.

        Raises DamageError. Only under the lock.
        """
        if tail.is_flagged(boot):
            raise self._refused()
        if not is_first:
            return
        try:
            damage.verify(self._segments, self._snapshots, tail)
        except DamageError as error:
            raise self.remember(error, boot) from None

    def remember(self, error: DamageError, boot: bytes) -> DamageError:
        """Let every process accept no message from now on; return the error. Only under the lock."""
        with suppress(OSError):
            if damage.read_marker(self._folder) is None:
                log.error("Damage found; no message is accepted: %s", error)
                damage.write_marker(self._folder, str(error), self._place.names_to_disk)
        with suppress(OSError):
            tail = self._place.read_tail()
            if tail is not None and tail.boot == boot:
                self._place.write_tail(tail._replace(boot=flagged(boot)))
        return error

    def boot_of(self, boot: bytes) -> bytes:
        """Return what a new tail has for this start of the system: damage that was found before it stays found."""
        return boot if damage.read_marker(self._folder) is None else flagged(boot)

    def forget(self) -> None:
        """Begin without damage: the queue was emptied. Only under the lock."""
        (self._folder / damage.MARKER).unlink(missing_ok=True)
