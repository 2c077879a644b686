"""Whether the deployment has just been started, so that what is missing is on its way."""

from datetime import timedelta

from django.db.models.functions import Now

from ami.queues import named_leases
from ami.queues.models import Beat, Lease, Worker

#: A container waits for its services, imports and consumes within this time.
GRACE = timedelta(seconds=90)
#: A row that was written within this time is of a process that lives.
FRESH = timedelta(seconds=60)
#: The name of the lease that runs until the deployment should be up, and of its holder: any process may begin.
NAME = "starting"


def begin() -> None:
    """Note that the deployment is being started now; one statement, the first time four."""
    named_leases.take(NAME, NAME, GRACE.total_seconds())


def begin_unless_running() -> None:
    """Note it where no worker and no beat lives: a web process that starts beside others starts no deployment."""
    if not any(model.objects.filter(seen_at__gt=Now() - FRESH).exists() for model in (Worker, Beat)):
        begin()


def is_starting() -> bool:
    """Whether a start was noted within `GRACE`; one statement."""
    return Lease.objects.filter(name=NAME, until__gt=Now()).exists()
