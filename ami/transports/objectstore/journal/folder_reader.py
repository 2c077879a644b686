"""The part of a folder's journal that reads: it feeds followers, returns payloads, and remembers damage."""

from contextlib import suppress
from pathlib import Path

from ami.transports.objectstore.journal.damage import check_length
from ami.transports.objectstore.journal.damage_guard import DamageGuard
from ami.transports.objectstore.journal.frames import HEADER_BYTES, LINK, VOID, frames, verified
from ami.transports.objectstore.journal.place import Place
from ami.transports.objectstore.journal.port import BehindError, Follower
from ami.transports.objectstore.journal.segments import Segments
from ami.transports.objectstore.journal.snapshots import Snapshots
from ami.transports.objectstore.journal.tail import Tail
from ami.transports.objectstore.storage.errors import DamageError, StorageError


class FolderReader:
    """The base of a folder's journal, which has the files open."""

    folder: Path
    grown: int
    _position: tuple[int, int] | None
    _segments: Segments
    _snapshots: Snapshots
    _place: Place
    _guard: DamageGuard

    @property
    def position(self) -> tuple[int, int]:
        return self._position or (0, 0)

    def _boot(self) -> bytes:
        """Return the id of this start of the system."""
        raise NotImplementedError

    def _trusted_tail(self) -> Tail:
        """Return the tail, with nothing beyond it in its segment. Only under the lock."""
        raise NotImplementedError

    def follow(self, follower: Follower) -> None:
        if self._place.is_there() and self._place.read_tail() == Tail(self._boot(), *self.position):
            return
        tail = self._place.locked(self._trusted_tail)
        try:
            self._read_on(follower, tail)
        except (BehindError, DamageError):
            # Segments were dropped or replaced meanwhile; under the lock none is.
            self._place.locked(lambda: self._catch_up(follower, self._trusted_tail()))

    def _catch_up(self, follower: Follower, tail: Tail) -> None:
        """Feed all up to the tail. Only under the lock, when no segment is dropped."""
        try:
            try:
                self._read_on(follower, tail)
            except BehindError:
                self._read_on(follower, tail)
        except BehindError as error:
            raise self._remember(DamageError(str(error))) from error
        except DamageError as error:
            raise self._remember(error) from None

    def _read_on(self, follower: Follower, tail: Tail) -> None:
        """Feed all up to the tail. Raises BehindError where some of it was dropped; the next call starts over."""
        try:
            self._feed(follower, tail)
        except StorageError:
            self._position = None
            raise

    def _feed(self, follower: Follower, tail: Tail) -> None:
        if self._position is None:
            self._begin(follower)
        if self.position > (tail.segment, tail.length):
            # The folder was replaced since the tail was read, or the journal lost its end.
            raise BehindError(f"{self._segments.path(tail.segment)} ends before what was read from it")
        for number in range(self.position[0], tail.segment + 1):
            end = tail.length if number == tail.segment else self._segments.size(number)
            offset = self.position[1]
            content = self._segments.read(number, offset, end - offset)
            for start, body in frames(content, 0, str(self._segments.path(number)), offset):
                if body[:1] == LINK:
                    with suppress(BehindError):
                        check_length(self._segments, number - 1, int.from_bytes(body[1:], "little"))
                elif body[:1] != VOID:
                    follower.feed(number, offset + start, body)
                    self.grown += HEADER_BYTES + len(body)
                self._position = (number, offset + start + len(body))
            if number < tail.segment:
                self._position = (number + 1, 0)

    def _begin(self, follower: Follower) -> None:
        """Start at the latest snapshot that is whole, or at the first segment."""
        for place, content in self._snapshots.whole():
            follower.reset(content)
            self._position, self.grown = place, 0
            return
        numbers = self._segments.numbers()
        if numbers != list(range(1, len(numbers) + 1)):
            raise BehindError(f"{self.folder} has no whole snapshot, and its first segments are missing")
        follower.reset(None)
        self._position, self.grown = (1, 0), 0

    def read(self, segment: int, offset: int, length: int, checksum: int) -> bytes:
        try:
            content = self._segments.read(segment, offset, length)
            return verified(content, checksum, str(self._segments.path(segment)), offset)
        except BehindError as error:
            self._remember_if_stuck(segment)
            raise DamageError(f"{self._segments.path(segment)} is missing") from error
        except DamageError:
            self._remember_if_stuck(segment)
            raise

    # Damage.

    def _remember(self, error: DamageError) -> DamageError:
        return self._guard.remember(error, self._boot())

    def _remember_if_stuck(self, segment: int) -> None:
        """After a payload could not be read: find out whether a process that begins now could read the queue."""

        def look() -> None:
            tail = self._trusted_tail()
            is_needed = not tail.is_flagged(self._boot()) and segment >= self._snapshots.newest()[0]
            if is_needed and (error := self._damage_up_to(tail)) is not None:
                self._remember(error)

        with suppress(StorageError):
            self._place.locked(look)

    def _damage_up_to(self, tail: Tail) -> DamageError | None:
        """Return why a process that begins now could not read everything up to the tail; None where it could."""
        before = self._position, self.grown
        try:
            self._position = None
            self._read_on(_NullFollower(), tail)
        except BehindError as error:
            return DamageError(str(error))
        except DamageError as error:
            return error
        finally:
            self._position, self.grown = before
        return None


class _NullFollower:
    """Ignores what it is fed: reading is the check."""

    def reset(self, snapshot: bytes | None) -> None:
        pass

    def feed(self, segment: int, offset: int, body: bytes) -> None:
        pass
