"""One message of a queue: its order, its lease, and the place of its bytes in the journal."""

from typing import Any

FIELDS = (
    "id",
    "entrypoint",
    "priority",
    "order",
    "created",
    "expires",
    "deliveries",
    "redelivered",
    "owner",
    "beat",
    "until",
    "buried",
    "segment",
    "offset",
    "length",
    "checksum",
)


class Entry:
    """A message of the queue; moments are epoch seconds.

    ``owner`` is None while it waits. ``until`` None is a lease without an end. ``buried`` is the reason why it is not
    delivered any more. ``deliveries`` counts toward the delivery limit. ``redelivered``: it may have run before.
    """

    __slots__ = FIELDS

    id: str
    entrypoint: str
    priority: int
    order: int
    created: float
    expires: float | None
    deliveries: int
    redelivered: bool
    owner: str | None
    beat: float | None
    until: float | None
    buried: str | None
    segment: int
    offset: int
    length: int
    checksum: int

    def __init__(
        self, name: str, entrypoint: str, priority: int, order: int, created: float, expires: float | None
    ) -> None:
        self.id = name
        self.entrypoint = entrypoint
        self.priority = priority
        self.order = order
        self.created = created
        self.expires = expires
        self.deliveries = 0
        self.redelivered = False
        self.owner = self.beat = self.until = self.buried = None
        self.segment = self.offset = self.length = self.checksum = 0

    @property
    def is_waiting(self) -> bool:
        """Whether it may be claimed."""
        return self.owner is None and self.buried is None

    def dump(self) -> list[Any]:
        """Return what `load` reads, in the order of `FIELDS`."""
        return [
            self.id,
            self.entrypoint,
            self.priority,
            self.order,
            self.created,
            self.expires,
            self.deliveries,
            self.redelivered,
            self.owner,
            self.beat,
            self.until,
            self.buried,
            self.segment,
            self.offset,
            self.length,
            self.checksum,
        ]

    @classmethod
    def load(cls, values: list[Any]) -> "Entry":
        """Return the entry that `dump` wrote."""
        entry = cls.__new__(cls)
        # One assignment: opening a queue loads all its entries.
        (
            entry.id,
            entry.entrypoint,
            entry.priority,
            entry.order,
            entry.created,
            entry.expires,
            entry.deliveries,
            entry.redelivered,
            entry.owner,
            entry.beat,
            entry.until,
            entry.buried,
            entry.segment,
            entry.offset,
            entry.length,
            entry.checksum,
        ) = values
        return entry
