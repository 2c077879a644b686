"""Whether the deployment has just been started, so that what is missing is on its way."""

from datetime import timedelta

from django.db.models import Case, Value, When
from django.db.models.functions import Now

from ami.queues.models import Beat, Lease, Worker
from ami.queues.rescue import lease

#: A container waits for its services, imports and consumes within this time.
GRACE = timedelta(seconds=90)
#: A row that was written within this time is of a process that lives.
FRESH = timedelta(seconds=60)
#: The name of the lease that runs until the deployment should be up, and of its holder: any process may begin.
NAME = "starting"
_OLD, _NEW, _NOTED = 0, 1, 2


def begin() -> None:
    """Note that the deployment is being started now; one statement, the first time two."""
    lease.acquire(NAME, NAME, GRACE.total_seconds())


def begin_unless_running() -> None:
    """Note it where no worker and no beat has a row: a web process that starts beside others starts no deployment."""
    if not (Worker.objects.exists() or Beat.objects.exists()):
        begin()


def is_starting() -> bool:
    """Whether it was noted within `GRACE`, or every process that lives began within it; one statement."""
    age = Case(When(started_at__gt=Now() - GRACE, then=Value(_NEW)), default=Value(_OLD))
    living = [model.objects.filter(seen_at__gt=Now() - FRESH).order_by() for model in (Worker, Beat)]
    workers, beats = (rows.annotate(age=age).values_list("age") for rows in living)
    noted = Lease.objects.filter(name=NAME, until__gt=Now()).annotate(age=Value(_NOTED)).values_list("age")
    found = {age for (age,) in noted.union(workers, beats)}
    return _NOTED in found or found == {_NEW}
