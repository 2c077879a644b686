"""Keys in order whose first call is a letter: they wait until it is replayed or given up."""

from collections.abc import Collection

from django.db.models.functions import Now

from ami.admission.models import Call


def stop(call: int) -> bool:
    """Keep the call of a run that failed as the first one of its key; False if it is gone."""
    return bool(Call.objects.filter(pk=call).update(run=None, starts=0, stopped_at=Now()))


def go_on(row: Call) -> bool:
    """Let the call of a replayed letter run in its old place, with the letter's arguments; False if none is stopped."""
    values = {"arguments": row.arguments, "options": row.options, "expires": row.expires}
    stopped = Call.objects.filter(task_id=row.task_id, stopped_at__isnull=False)
    return bool(stopped.update(stopped_at=None, not_before=None, ready=True, retries=row.retries, **values))


def give_up(task_ids: Collection[str]) -> int:
    """Let the keys of discarded letters go on without them; return how many there were."""
    return int(Call.objects.filter(task_id__in=task_ids, stopped_at__isnull=False).delete()[0])


def has(task_id: str) -> bool:
    """Whether the call with this id has stopped its key."""
    return Call.objects.filter(task_id=task_id, stopped_at__isnull=False).exists()
