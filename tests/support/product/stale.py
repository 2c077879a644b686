"""What was marked stale and not recounted yet, and a worker's part for it: calls that wait are taken and run here."""

import json

from ami.admission.models import Call
from ami.main.services import recounts, sessions
from ami.main.services.stale_marks import REGROUP, UPDATE_COUNTS
from tests.support.product.factories import Turn

Mark = tuple[str, int]


def marked() -> set[Mark]:
    """Return the kind and the key of each object that is to be recounted; ``sessions`` are stations to regroup."""
    return set().union(*_by_call().values())


def _by_call() -> dict[int, set[Mark]]:
    found = {}
    calls = Call.objects.filter(task__in=(UPDATE_COUNTS, REGROUP))
    for pk, task, text in calls.values_list("pk", "task", "arguments"):
        _, given = json.loads(text)
        is_regroup = task == REGROUP
        found[pk] = (
            {("sessions", given["deployment_id"])} if is_regroup else {(given["kind"], key) for key in given["pks"]}
        )
    return found


def forget() -> None:
    """Delete the calls."""
    Call.objects.filter(task__in=(UPDATE_COUNTS, REGROUP)).delete()


def recount_marked() -> None:
    """Do all that is to be done: group, then recount, until nothing more is marked."""
    while calls := _by_call():
        Call.objects.filter(pk__in=calls).delete()  # Those that come meanwhile stay.
        found = set().union(*calls.values())
        for pk in sorted(pk for kind, pk in found if kind == "sessions"):
            assert sessions.regroup(pk, Turn()) is sessions.Outcome.DONE
        for kind in sorted({kind for kind, _ in found} - {"sessions"}):
            assert recounts.recount(kind, [pk for each, pk in found if each == kind], Turn()) == []
