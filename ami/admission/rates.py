"""The generic cell rate algorithm on one row per key: calls are sent evenly spaced, after a pause a burst of them."""

from collections.abc import Collection

from ami.admission.models import Bucket
from ami.admission.policies import Rate


def interval(rate: Rate) -> float:
    return rate.per_seconds / rate.most


def next_arrival(rate: Rate, arrival: float, now: float) -> float | None:
    """Return when the next call but one is due by the rate; None if the next one is not due yet. Epoch seconds."""
    step = interval(rate)
    arrival = max(arrival, now)
    return None if arrival - now > step * (rate.burst - 1) + 1e-9 else arrival + step


def arrivals(keys: Collection[str]) -> dict[str, float]:
    """Return when the next call of each key is due by its rate; a key that is new is missing. One statement."""
    return dict(Bucket.objects.filter(key__in=keys).values_list("key", "arrival"))


def take(key: str, rate: Rate, found: float | None, now: float) -> float | None:
    """Take one call of the rate, if it is due; return the key's next arrival, None if it is not due.

    ``found`` is what `arrivals` has of the key. One statement, another one for a new key.
    """
    following = next_arrival(rate, found if found is not None else 0.0, now)
    if following is None:
        return None
    if found is None:
        Bucket.objects.bulk_create([Bucket(key=key, arrival=0.0)], ignore_conflicts=True)
        found = 0.0
    return following if Bucket.objects.filter(key=key, arrival=found).update(arrival=following) else None
