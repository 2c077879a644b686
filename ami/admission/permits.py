"""Which permits of a key are free, and for which call those of a key are kept."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from django.db import connection
from django.db.models.functions import Now

from ami.admission.lanes import Candidate
from ami.admission.models import Reservation, Run
from ami.admission.policies import Permits, Policy

#: Permits are kept for a call for so long, unless its dispatcher finds it waiting again: twice its longest pause.
RESERVED_SECONDS = 10.0

_RESERVATIONS = Reservation._meta.db_table
#: One that is another call's is left alone until it has ended.
_RESERVE = f"""
INSERT INTO {_RESERVATIONS} (permit_key, call, until) VALUES {{rows}}
ON CONFLICT (permit_key) DO UPDATE SET call = EXCLUDED.call, until = EXCLUDED.until
WHERE {_RESERVATIONS}.call = EXCLUDED.call OR {_RESERVATIONS}.until <= %s
"""  # noqa: S608 - names of the model


@dataclass
class _Held:
    """The permits of one key that runs hold: their numbers, one for each run, and what they cost together.

    ``is_full``: a call found too few left. No other one is picked past it, or it would wait for ever.
    ``reserved_for`` is the call for which the others are kept.
    """

    numbers: set[int] = field(default_factory=set)
    cost: int = 0
    is_full: bool = False
    reserved_for: int | None = None
    is_locked: bool = False


class PermitBook:
    """The permits of the keys that one turn of a dispatcher looks at.

    The constraint of `Run` keeps two queues' dispatchers from one number. What runs cost together it does not know: of
    tasks that cost more than one, only the dispatcher picks that has the key's lock. A call that finds too few left
    there reserves the key, in a row that the dispatchers of all queues read.
    """

    def __init__(self, policies: Mapping[str, Policy], now: float) -> None:
        self._now = datetime.fromtimestamp(now, UTC)
        limited = {name: policy.permits for name, policy in policies.items() if policy.permits is not None}
        weighed = {permits.name or name for name, permits in limited.items() if permits.cost != 1}
        self._weighed = {name for name, permits in limited.items() if (permits.name or name) in weighed}
        self._held: dict[str, _Held] = {}
        self._waiting: dict[str, int] = {}
        self._served: list[str] = []

    def look_up(self, keys: Iterable[str]) -> None:
        """Read what is held and reserved of these keys; two statements at most."""
        if new := set(keys) - self._held.keys():
            self._held |= self._read(new)

    def _read(self, keys: set[str]) -> dict[str, _Held]:
        found = {key: _Held() for key in keys}
        rows = Run.objects.filter(permit_key__in=keys).values_list("permit_key", "permit_number", "permit_cost")
        for key, number, cost in rows:
            found[key].numbers.add(number or 0)
            found[key].cost += cost
        if self._weighed:
            reserved = Reservation.objects.filter(permit_key__in=keys, until__gt=Now())
            for key, call in reserved.values_list("permit_key", "call"):
                found[key].reserved_for = call
        return found

    def free(self, key: str, call: Candidate, permits: Permits | None) -> int | None:
        """Return the smallest free number of a call's permits, 0 if too few are left, None if it needs none."""
        if permits is None or not key:
            return None
        held = self._held[key]
        number = _number(held, call, permits)
        if number and call.task in self._weighed and not held.is_locked:
            held = self._held[key] = self._locked(key)
            number = _number(held, call, permits)
        if number:
            return number
        if call.task in self._weighed and not held.is_full and held.reserved_for in (None, call.pk):
            self._waiting[key] = call.pk
        held.is_full = True
        return 0

    def take(self, key: str, call: Candidate, number: int) -> None:
        """Note that a run takes this number of a key's permits."""
        held = self._held[key]
        held.numbers.add(number)
        held.cost += call.permit_cost
        if held.reserved_for is not None:
            held.reserved_for = None
            self._served.append(key)

    def write(self) -> None:
        """Keep the permits of keys of which a call waits for more; give up what was kept for calls that were picked."""
        if self._served:
            Reservation.objects.filter(permit_key__in=self._served).delete()
        if not self._waiting:
            return
        until = self._now + timedelta(seconds=RESERVED_SECONDS)
        now, until = (
            Reservation._meta.get_field("until").get_db_prep_save(each, connection) for each in (self._now, until)
        )
        rows = ", ".join(["(%s, %s, %s)"] * len(self._waiting))
        values = [value for key, call in sorted(self._waiting.items()) for value in (key, call, until)]
        with connection.cursor() as cursor:
            cursor.execute(_RESERVE.format(rows=rows), [*values, now])

    def _locked(self, key: str) -> _Held:
        """Lock a key's permits until the end of the transaction, and read them again.

        SQLite has one writer. None is free while another dispatcher has the lock.
        """
        if connection.vendor == "postgresql":
            with connection.cursor() as cursor:
                cursor.execute("SELECT pg_try_advisory_xact_lock(hashtextextended(%s, 0))", [f"permits {key}"])
                if not cursor.fetchone()[0]:
                    return _Held(is_full=True)
        held = self._read({key})[key]
        held.is_locked = True
        return held


def _number(held: _Held, call: Candidate, permits: Permits) -> int:
    """Return the smallest free number of a key's permits, 0 if too few are left for the call."""
    most = permits.most
    # More than ``most`` were allowed when they were sent.
    is_short = held.cost + min(call.permit_cost, most) > most or len(held.numbers) >= most
    if held.is_full or is_short or held.reserved_for not in (None, call.pk):
        return 0
    return next(number for number in range(1, most + 1) if number not in held.numbers)
