"""How long the records of operators and of tasks are kept."""

from datetime import datetime, timedelta

from django.conf import settings
from django.db.models import Exists, OuterRef, Q, Value
from django.db.models.functions import Concat
from django.utils import timezone

from ami.queues import failures
from ami.queues.models import AuditEntry, DesiredState, Fence, Letter, RefusedRequests, Replay, TaskCount, TaskRun
from ami.queues.old_rows import Kept, delete_some

#: A state without effect, such as of a queue that was paused once.
STATES = timedelta(days=30)
TASK_COUNTS = timedelta(days=30)
TASK_RUNS = timedelta(days=7)
#: A run of a slice takes minutes.
FENCES = timedelta(days=7)

#: Kinds of targets that no other target contains: a state with the value 0 is as none.
ALONE = ("queue", "task name", "job", "permits", "rate", "fair key")


def audit() -> int:
    """Delete old entries, but not those of what is still in force: a pause, a limit, a replay that goes on."""
    before = audited_until()
    began = Replay.objects.filter(state=Replay.State.RUNNING).order_by("began_at").values_list("began_at", flat=True)
    if (oldest := began.first()) is not None:
        before = min(before, oldest - timedelta(minutes=1))
    return delete_some(AuditEntry.objects.filter(~_of_state_in_force(), at__lt=before).order_by("at"))


def audited_until() -> datetime:
    """Return the time before which what users did is forgotten."""
    return timezone.now() - timedelta(days=settings.ANTENNA_AUDIT_DAYS)


def _of_state_in_force() -> Exists:
    """Return the condition that an entry is about a state that is in force still: who wanted it, and why."""
    in_force = DesiredState.objects.filter(Q(until=None) | Q(until__gt=timezone.now())).exclude(value=0)
    # An entry is written just after its state, by another clock.
    written = in_force.filter(since__lte=OuterRef("at") + timedelta(minutes=1))
    return Exists(written.annotate(target=Concat("kind", Value(" "), "name")).filter(target=OuterRef("target")))


def refused_requests() -> int:
    """Delete old counts of refused requests."""
    return delete_some(RefusedRequests.objects.filter(hour__lt=audited_until()).order_by("hour"))


def states() -> int:
    """Delete states that have had no effect for long; what is set aside for one is still to come back."""
    before = timezone.now() - STATES
    over = Q(value=0, kind__in=ALONE) | Q(aspect=DesiredState.Aspect.RESTARTED)
    without_effect = Q(until__lt=before) | Q(over, since__lt=before)
    waiting = Letter.objects.filter(state=Letter.State.SET_ASIDE)
    named = Exists(waiting.filter(task=OuterRef("name"))) | Exists(waiting.filter(job=OuterRef("name")))
    return delete_some(DesiredState.objects.filter(without_effect).exclude(named).order_by("pk"))


def replays() -> int:
    """Delete old replays that do not run."""
    rows = Replay.objects.exclude(state=Replay.State.RUNNING)
    return delete_some(rows.filter(began_at__lt=audited_until()).order_by("pk"))


def task_runs() -> int:
    """Delete tasks that ran for a while and ended long ago."""
    return delete_some(TaskRun.objects.filter(ended_at__lt=timezone.now() - TASK_RUNS))


def task_counts() -> int:
    """Delete old counts of ended tasks."""
    return delete_some(TaskCount.objects.filter(hour__lt=timezone.now() - TASK_COUNTS))


def fences() -> int:
    """Delete fences of runs that ended long ago."""
    return delete_some(Fence.objects.filter(started_at__lt=timezone.now() - FENCES))


RETENTION = (
    Kept("queues.AuditEntry", audit),
    Kept("queues.RefusedRequests", refused_requests),
    Kept("queues.DesiredState", states),
    Kept("queues.Replay", replays),
    Kept("queues.TaskFailure", failures.forget_old),
    Kept("queues.TaskRun", task_runs),
    Kept("queues.TaskCount", task_counts),
    Kept("queues.Fence", fences),
)
