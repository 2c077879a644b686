"""Says that calculated fields are stale: a call in the transaction that changed their data recounts them later.

The calls of one kind are one run (`GroupBy` of ``update_counts``), `ANTENNA_COUNTS_SECONDS` after the first of them.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from ami.queues.publish import publish_many, signature

UPDATE_COUNTS, REGROUP = "ami.main.tasks.update_counts", "ami.main.tasks.regroup_events"
KINDS = ("event", "deployment", "project")
#: Keys of one call; a group's run has those of many.
MOST_KEYS = 1000


def mark_stale(kind: str, pks: Iterable[int | None]) -> None:
    """Mark the calculated fields of these objects stale, in the transaction that changed their data.

    ``kind`` is ``event``, ``deployment``, or ``project``, which is all of its events and stations. No keys mark
    nothing, never everything (hazard 5); None is skipped.

    Raises:
        ValueError: unknown kind.
    """
    if kind not in KINDS:
        raise ValueError(f"'{kind}' has no calculated fields; choose one of {', '.join(KINDS)}.")
    publish_many(_calls(kind, pks))


def mark_stale_counts(*, events: Iterable[int | None], deployments: Iterable[int | None]) -> None:
    """Mark sessions and stations stale together; see `mark_stale`."""
    publish_many([*_calls("event", events), *_calls("deployment", deployments)])


def _calls(kind: str, pks: Iterable[int | None]) -> Iterator[Any]:
    from ami.main.tasks import update_counts  # It imports what marks.

    keys = sorted({int(pk) for pk in pks if pk is not None})
    for first in range(0, len(keys), MOST_KEYS):
        yield signature(update_counts, kind=kind, pks=keys[first : first + MOST_KEYS])


def regroup_later(pks: Iterable[int]) -> None:
    """Let the captures of these stations be grouped into sessions again, once this transaction has committed."""
    from ami.main.models import Deployment
    from ami.main.tasks import regroup_events

    stations = Deployment.objects.filter(pk__in=list(pks)).order_by("pk").values_list("pk", "project_id")
    publish_many([signature(regroup_events, deployment_id=pk, project_id=project) for pk, project in stations])
