"""Takes calls away from what holds them: a run whose process does not end, or a key that stands behind a letter."""

from dataclasses import dataclass

from django.db import transaction

from ami.admission import shares
from ami.admission.calls import delete
from ami.admission.models import Call, Run


@dataclass(frozen=True)
class Released:
    """What became of one call and of those that its run had taken with it.

    ``was`` is ``stopped`` (its key goes on without it), ``sent``, ``running`` (the run cannot end any more: what it has
    done outside the database stays) or ``waiting``. ``calls`` is how many wait again or, with ``is_dropped``, are gone.
    """

    task_id: str
    task: str
    key: str
    was: str
    calls: int
    is_dropped: bool


def release(task_id: str, *, drop: bool = False) -> Released | None:
    """Free the key and the permit that the run of a call holds; None where no call has this id.

    Its calls wait again, or are deleted with ``drop``. A stopped call is deleted in any case: its letter stays. One
    that waits is left alone without ``drop``.
    """
    with transaction.atomic():
        call = Call.objects.select_for_update().filter(task_id=task_id).first()
        if call is None:
            return None
        own = Call.objects.filter(pk=call.pk)
        if call.stopped_at is not None:
            return Released(task_id, call.task, call.key_text, "stopped", delete(own), True)
        if call.run is None:
            return Released(task_id, call.task, call.key_text, "waiting", delete(own) if drop else 0, drop)
        run = Run.objects.filter(pk=call.run).first()
        was = str(run.state) if run is not None else "sent"
        if run is not None:
            shares.charge(run)
            run.delete()
        calls = Call.objects.filter(run=call.run)
        count = delete(calls) if drop else calls.update(run=None)
        return Released(task_id, call.task, call.key_text, was, count, drop)
