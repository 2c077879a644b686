"""Numbers of requests by the kinds that services bill, and what a thousand of each costs."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from ami.transports.objectstore.storage.request_counter import Traffic


class Requests(NamedTuple):
    """How many of each kind; a create and a replace are both a PUT."""

    get: float = 0.0
    put: float = 0.0
    list: float = 0.0
    delete: float = 0.0

    @classmethod
    def of(cls, traffic: Traffic) -> "Requests":
        """Return what was counted, by kind."""
        return cls(traffic.read, traffic.create + traffic.replace, traffic.list, traffic.delete)

    def plus(self, other: "Requests") -> "Requests":
        """Return both together."""
        return Requests(*(mine + theirs for mine, theirs in zip(self, other, strict=True)))

    def minus(self, other: "Requests") -> "Requests":
        """Return what of this one is not in the other."""
        return self.plus(other.times(-1))

    def times(self, factor: float) -> "Requests":
        """Return so many times this."""
        return Requests(*(number * factor for number in self))

    @classmethod
    def total(cls, several: Iterable["Requests"]) -> "Requests":
        """Return all together."""
        return cls(*(sum(kind) for kind in zip(cls(), *several, strict=True)))


@dataclass(frozen=True)
class Prices:
    """US dollars for 1,000 requests of each kind; what is kept and what leaves the region costs extra."""

    name: str
    source: str
    get: float
    put: float
    list: float
    delete: float = 0.0

    def of(self, requests: Requests) -> float:
        """Return the price in US dollars."""
        each = (self.get, self.put, self.list, self.delete)
        return sum(number * price for number, price in zip(requests, each, strict=True)) / 1000


#: List prices; a bill has the region's own, and the first requests of a month may be free. What kind a request is of:
#: https://learn.microsoft.com/azure/storage/blobs/map-rest-apis-transaction-categories for Azure, where a list costs as
#: much as a write; the pricing pages for the others. None of the three takes anything for a delete.
PRICES = {
    "s3": Prices(
        "Amazon S3 Standard, us-east-1",
        "https://aws.amazon.com/s3/pricing/, as of March 2026",
        get=0.0004,
        put=0.005,
        list=0.005,
    ),
    "gcs": Prices(
        "Google Cloud Storage Standard, one region",
        "https://cloud.google.com/storage/pricing-examples: class A, class B, delete free",
        get=0.0004,
        put=0.005,
        list=0.005,
    ),
    "azure": Prices(
        "Azure Blob Storage, hot, LRS, East US",
        "https://azure.microsoft.com/pricing/details/storage/blobs/, as of May 2026; some regions take more",
        get=0.00044,
        put=0.0055,
        list=0.0055,
    ),
}
