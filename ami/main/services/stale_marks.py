"""Marks calculated fields as stale; `stale_counts` recounts them."""

from collections.abc import Iterable

from ami.main.models.maintenance import StaleCount


def mark_stale(kind: str, pks: Iterable[int | None]) -> None:
    """Mark the calculated fields of these objects stale, in the transaction that changed their data.

    ``kind`` is ``event``, ``deployment``, ``project`` or ``sessions`` (a deployment to regroup). No keys mark nothing,
    never everything (hazard 5); None is skipped.

    Raises:
        ValueError: unknown kind.
    """
    if kind not in StaleCount.Kind.values:
        raise ValueError(f"'{kind}' has no calculated fields; choose one of {', '.join(StaleCount.Kind.values)}.")
    keys = sorted({int(pk) for pk in pks if pk is not None})
    StaleCount.objects.bulk_create([StaleCount(kind=kind, object_pk=pk) for pk in keys], batch_size=1000)


def mark_stale_counts(*, events: Iterable[int | None], deployments: Iterable[int | None]) -> None:
    """Mark sessions and stations stale by one statement; see `mark_stale`."""
    kinds = {StaleCount.Kind.EVENT: events, StaleCount.Kind.DEPLOYMENT: deployments}
    keys = [(kind, pk) for kind, pks in kinds.items() for pk in sorted({pk for pk in pks if pk is not None})]
    if keys:
        StaleCount.objects.bulk_create([StaleCount(kind=kind, object_pk=pk) for kind, pk in keys], batch_size=1000)
