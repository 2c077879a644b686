"""The tail of a folder's journal: one small file with the length of the last segment that counts."""

import os
import struct
import zlib
from functools import cache
from pathlib import Path
from typing import NamedTuple

#: The tail begins with the id of a start of the system.
BOOT_BYTES = 16
_TAIL = struct.Struct(f"<{BOOT_BYTES}sQQ")
_CHECKED = struct.Struct("<16sQQI")
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class Tail(NamedTuple):
    """The last segment's number and how many of its bytes count; ``boot`` is the id of this start of the system."""

    boot: bytes
    segment: int
    length: int

    def is_of(self, boot: bytes) -> bool:
        """Whether this start of the system wrote it, whose id is ``boot``."""
        return self.boot in (boot, flagged(boot))

    def is_flagged(self, boot: bytes) -> bool:
        """Whether damage was found in the journal since."""
        return self.boot == flagged(boot)

    def write(self, fd: int) -> None:
        """Overwrite it, without fsync: after a power failure the checksums show the journal's end."""
        packed = _TAIL.pack(*self)
        os.pwrite(fd, packed + struct.pack("<I", zlib.crc32(packed)), 0)

    @classmethod
    def read(cls, fd: int) -> "Tail | None":
        """Return it, None where it is missing or was read while it was written."""
        content = os.pread(fd, _CHECKED.size, 0)
        if len(content) < _CHECKED.size or zlib.crc32(content[: _TAIL.size]) != _CHECKED.unpack(content)[3]:
            return None
        return cls(*_TAIL.unpack(content[: _TAIL.size]))


@cache
def flagged(boot: bytes) -> bytes:
    """Return what stands for ``boot`` in the tail of a damaged journal; every writer reads the tail first."""
    return bytes(byte ^ 0xFF for byte in boot)


@cache
def this_boot() -> bytes:
    """Return the id of this start of the system: what was written before it may not be on disk."""
    try:
        return bytes.fromhex(BOOT_ID.read_text().strip().replace("-", ""))
    except OSError:
        # Starts cannot be distinguished here: each process checks the last segment once.
        return os.urandom(16)
