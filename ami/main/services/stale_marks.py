"""Marks calculated fields as stale; `stale_counts` counts them again."""

from collections.abc import Iterable

from ami.main.models.maintenance import StaleCount


def mark_stale(kind: str, pks: Iterable[int | None]) -> None:
    """Remember that the calculated fields of these objects no longer fit their data.

    ``kind`` is ``event``, ``deployment``, ``project`` or ``sessions`` (a deployment to group anew). Call it in the
    transaction that changed the data. No keys mean nothing to do, never everything (hazard 5); None is skipped.

    Raises:
        ValueError: for an unknown kind.
    """
    if kind not in StaleCount.Kind.values:
        raise ValueError(f"'{kind}' has no calculated fields; choose one of {', '.join(StaleCount.Kind.values)}.")
    keys = sorted({int(pk) for pk in pks if pk is not None})
    StaleCount.objects.bulk_create([StaleCount(kind=kind, object_pk=pk) for pk in keys], batch_size=1000)
