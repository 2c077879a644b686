"""A journal in a folder: segments that are appended to under a lock, by several processes of one machine."""

import logging
import os
from contextlib import suppress
from pathlib import Path

from ami.transports.objectstore.journal.damage_guard import DamageGuard
from ami.transports.objectstore.journal.folder_reader import FolderReader
from ami.transports.objectstore.journal.frames import HEADER_BYTES, LINK, frame
from ami.transports.objectstore.journal.place import Place
from ami.transports.objectstore.journal.port import BehindError, Follower
from ami.transports.objectstore.journal.recovery import last_whole
from ami.transports.objectstore.journal.segments import Segments
from ami.transports.objectstore.journal.snapshots import Snapshots
from ami.transports.objectstore.journal.tail import Tail, this_boot
from ami.transports.objectstore.storage.errors import DamageError, StorageError, from_os
from ami.transports.objectstore.storage.reserve import Reserve

log = logging.getLogger(__name__)

SEGMENT_BYTES = 8 * 1024**2

#: On a full disk a segment ends earlier, since only a segment that ended can be dropped.
FULL_SEGMENT_BYTES = 64 * 1024


class FolderJournal(FolderReader):
    """The segments ``00000001.log``, ``00000002.log`` ..., the snapshots, the tail and the lock of one queue.

    A writer holds the lock while it appends; a reader needs none, because it reads only up to the tail. A killed writer
    leaves bytes beyond the tail, which the next one cuts off. After a power failure the checksums show where the
    journal ends, and the batch ``power_failure`` is appended; the store gives it its meaning.

    Damage that any process finds is written down in the folder. From then on no process appends without reading first,
    and stores accept no message; what can be read goes on being claimed and acknowledged.
    """

    snapshot_share = 12

    def __init__(
        self,
        folder: Path,
        *,
        power_failure: bytes,
        durable: bool = True,
        segment_bytes: int = SEGMENT_BYTES,
        reserve: Reserve | None = None,
    ) -> None:
        self.folder = folder
        self.segment_bytes = segment_bytes
        self.grown = 0
        self._durable = durable
        self._power_failure = power_failure
        self._reserve = reserve
        self._position: tuple[int, int] | None = None
        self._segments = Segments(folder)
        self._snapshots = Snapshots(folder, durable)
        #: Whether this process has checked what it appends to without reading.
        self._is_verified = False
        #: Segments that the disk has refused to write.
        self._refused: set[int] = set()
        self._place = Place(folder, durable, self._restart)
        self._guard = DamageGuard(folder, self._place, self._segments, self._snapshots)

    def _boot(self) -> bytes:
        return this_boot()

    # Appending.

    def append(self, body: bytes, follower: Follower | None, durable: bool) -> tuple[int, int]:
        framed = frame(body)
        segment, start = self._place.locked(lambda: self._append(framed, follower))
        if durable and self._durable:
            try:
                self._to_disk(segment)
            except StorageError:
                self._position = None
                raise
            self._place.confirm(segment, start + len(framed))
        return segment, start + HEADER_BYTES

    def _append(self, framed: bytes, follower: Follower | None) -> tuple[int, int]:
        tail = self._trusted_tail()
        if follower is None:
            self._guard.verify(tail, this_boot(), not self._is_verified)
            self._is_verified = True
        for number in sorted(self._refused):
            self._write_again(number)
        if follower is not None:
            self._catch_up(follower, tail)
        if tail.length >= (min(FULL_SEGMENT_BYTES, self.segment_bytes) if self.is_full else self.segment_bytes):
            tail = self._next_segment(tail)
        segment, start = tail.segment, tail.length
        if follower is None:
            self._segments.keep_only(segment)
        self._write(self._segments.fd(segment), framed, start)
        self._place.write_tail(tail._replace(length=start + len(framed)))
        if follower is not None:
            self._position = (segment, start + len(framed))
            self.grown += len(framed)
        return segment, start

    def _trusted_tail(self) -> Tail:
        """Return the tail, with nothing beyond it in its segment. Only under the lock."""
        tail = self._place.read_tail()
        if tail is None or not tail.is_of(this_boot()):
            tail = self._recover()
        try:
            size = self._segments.size(tail.segment)
        except BehindError as error:
            raise self._remember(DamageError(f"{self._segments.path(tail.segment)} is missing")) from error
        if size > tail.length:
            os.ftruncate(self._segments.fd(tail.segment), tail.length)
        elif size < tail.length:
            where = self._segments.path(tail.segment)
            raise self._remember(DamageError(f"{where} has {size} bytes; {tail.length} were written"))
        return tail

    def _write(self, fd: int, content: bytes, at: int) -> None:
        try:
            written = os.pwrite(fd, content, at)
            # The next call says why it took only a part.
            if written < len(content) and os.pwrite(fd, content[written:], at + written) != len(content) - written:
                raise OSError("the file took only a part of it")
        except OSError as error:
            with suppress(OSError):
                os.ftruncate(fd, at)
            raise from_os(f"{self.folder} took no batch: {error}", error) from error

    def _next_segment(self, tail: Tail) -> Tail:
        """Begin a segment, with the one before on disk, so that a power failure takes only the journal's end."""
        if self._durable:
            self._to_disk(tail.segment)
        link = frame(LINK + tail.length.to_bytes(8, "little"))
        following = Tail(tail.boot, tail.segment + 1, len(link))
        self._write(self._segments.fd(following.segment, create=True), link, 0)
        self._place.names_to_disk()
        self._place.write_tail(following)
        self._place.confirm(following.segment, 0)
        if self._reserve is not None:
            self._reserve.grow()
        return following

    def _to_disk(self, number: int) -> None:
        try:
            os.fdatasync(self._segments.fd(number))
        except OSError as error:
            self._refused.add(number)
            raise StorageError(f"the disk refused what was written: {error}", error) from error

    def _write_again(self, number: int) -> None:
        """Write a segment again that the disk refused: the system reports that once, and then takes it for written."""
        with suppress(BehindError):
            fd = self._segments.fd(number)
            os.pwrite(fd, os.pread(fd, os.fstat(fd).st_size, 0), 0)
            self._to_disk(number)
        self._refused.discard(number)

    # After a power failure.

    def _recover(self) -> Tail:
        """Find the journal's end by its checksums, after a start of the system or at its first use."""
        try:
            tail = self._last_whole()
        except DamageError as error:
            raise self._remember(error) from None
        if not self._durable and self._damage_up_to(tail) is not None:
            log.warning("Emptied a transient queue after a power failure: %s", self.folder)
            for path in [*self._snapshots.paths(), *map(self._segments.path, self._segments.numbers())]:
                path.unlink(missing_ok=True)
            self._guard.forget()
            self._restart()
            tail = self._last_whole()
        if tail.length or tail.segment > 1:
            framed = frame(self._power_failure)
            self._write(self._segments.fd(tail.segment), framed, tail.length)
            tail = tail._replace(length=tail.length + len(framed))
        if self._durable:
            self._to_disk(tail.segment)
            self._place.names_to_disk()
        tail = tail._replace(boot=self._guard.boot_of(tail.boot))
        self._place.write_tail(tail)
        self._place.confirm(tail.segment, tail.length)
        return tail

    def _last_whole(self) -> Tail:
        return Tail(this_boot(), *last_whole(self._segments, self._place.read_confirmed(), self._durable))

    # Damage and full disks.

    def refusal(self) -> StorageError | None:
        damaged = self._guard.refusal(this_boot())
        if damaged is not None or self._reserve is None or self._reserve.is_there():
            return damaged
        self._segments.close_removed()
        return self._reserve.refusal()

    def make_room(self) -> bool:
        return self._reserve is not None and self._reserve.give_up()

    @property
    def is_full(self) -> bool:
        return self._reserve is not None and not self._reserve.is_there()

    # Snapshots.

    def save(self, snapshot: bytes, live: set[int]) -> None:
        """Keep a snapshot, and drop unneeded segments; the snapshot before it stays, should this one be damaged."""
        position = self.position
        if self._durable:
            # A snapshot that outlived its batches would point beyond the journal's end.
            if self._refused:
                raise StorageError("the disk refused batches of the snapshot, and they were not written again yet")
            self._to_disk(position[0])
        partial = self._snapshots.write(position, snapshot)
        try:
            self._place.locked(lambda: self._keep(partial, position, live))
        finally:
            with suppress(OSError):
                partial.unlink(missing_ok=True)

    def _keep(self, partial: Path, position: tuple[int, int], live: set[int]) -> None:
        if self._position != position:
            return  # This is another folder: that one was destroyed meanwhile.
        self.grown = 0
        if self._snapshots.newest() >= position:
            return  # Another process was faster.
        self._snapshots.name(partial)
        self._place.names_to_disk()
        first = self._snapshots.drop_old(1 if self.is_full else 2)
        for number in self._segments.numbers():
            if number < first and number not in live:
                self._segments.remove(number)

    def forget(self) -> None:
        self._position = None

    def destroy(self) -> None:
        """Remove everything; a process that waits for the lock makes the folder again."""
        self._place.destroy()
        self.close()

    def destroy_if_followed(self) -> bool:
        """See the port."""
        if not self._place.destroy(lambda: self._place.read_tail() == Tail(this_boot(), *self.position)):
            return False
        self.close()
        return True

    def close(self) -> None:
        self._place.close()
        self._restart()

    def _restart(self) -> None:
        self._position = None
        self._refused.clear()
        self._segments.close()
        self._is_verified = False
