"""The head of a journal in object storage: the one object that writers compare and set."""

import json
from dataclasses import dataclass, field, replace
from typing import Any

from ami.transports.objectstore.storage.errors import StorageError

FORMAT = 1


@dataclass(frozen=True)
class Head:
    """The open segment's number and content, the keys of the closed ones since the snapshot, and the snapshot's key.

    ``snapshot`` is (key, segment, offset): the place after it. ``number`` makes every head of a journal different, and
    ``life`` the journal different from one that was destroyed under the same name.
    """

    life: str = ""
    number: int = 0
    segment: int = 1
    content: bytes = b""
    keys: dict[int, str] = field(default_factory=dict)
    snapshot: tuple[str, int, int] | None = None
    #: ``keys`` as JSON, made once for all heads that have the same.
    keys_text: str = field(default="", compare=False, repr=False)

    def dump(self) -> bytes:
        """Return the object's bytes: a line of JSON, then the open segment as it is."""
        line: dict[str, Any] = {
            "format": FORMAT,
            "life": self.life,
            "number": self.number,
            "segment": self.segment,
            "snapshot": self.snapshot,
        }
        text = json.dumps(line, separators=(",", ":"))
        return f'{text[:-1]},"keys":{self.keys_text or _text(self.keys)}}}\n'.encode() + self.content

    @classmethod
    def load(cls, content: bytes) -> "Head":
        """Return the head of an object's bytes. Raises StorageError for one of another format."""
        line, _, segment = content.partition(b"\n")
        try:
            fields = json.loads(line)
            if fields["format"] != FORMAT:
                raise StorageError(f"the journal's head has format {fields['format']}; this version reads {FORMAT}")
            keys = {int(number): key for number, key in fields["keys"].items()}
            snapshot = tuple(fields["snapshot"]) if fields["snapshot"] else None
            return cls(fields["life"], fields["number"], fields["segment"], segment, keys, snapshot)
        except (ValueError, KeyError, TypeError) as error:
            raise StorageError(f"the journal's head cannot be read: {error}", error) from error

    def with_frame(self, framed: bytes) -> "Head":
        """Return the next head, with one more batch in the open segment."""
        return replace(self, number=self.number + 1, content=self.content + framed)

    def with_segment(self, key: str, framed: bytes) -> "Head":
        """Return the next head: the open segment is closed under ``key``, and the batch begins a new one."""
        keys = {**self.keys, self.segment: key}
        return replace(
            self, number=self.number + 1, segment=self.segment + 1, content=framed, keys=keys, keys_text=_text(keys)
        )

    def with_snapshot(self, key: str, segment: int, offset: int) -> "Head":
        """Return the next head, which names a newer snapshot and only the segments after it."""
        keys = {number: name for number, name in self.keys.items() if number >= segment}
        return replace(self, number=self.number + 1, keys=keys, snapshot=(key, segment, offset), keys_text=_text(keys))


def _text(keys: dict[int, str]) -> str:
    return json.dumps(keys, separators=(",", ":"))
