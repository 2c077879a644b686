"""How many images of other jobs a pull client still holds, so that none fetches from every job in its turn.

A client that reserves images of several jobs and works off one of them lets the leases of the others run out, until
they are delivered for the last time (incident 38).
"""

from django.conf import settings
from django.db.models import Exists, OuterRef
from django.db.models.functions import Now

from ami.jobs.models import Job, JobImage, StoredResult
from ami.jobs.models.states import ImageState


def allowance(job: Job, client: str, wanted: int) -> int:
    """Return how many of the ``wanted`` images of ``job`` the client may have now; 0 until it has posted others.

    With those of other jobs it holds at most `ANTENNA_PULL_MOST_HELD`. An image is held until its result is posted or
    its lease ends. One statement; another one where the limit is reached, since claims outlast their results until
    these are handled.
    """
    most = settings.ANTENNA_PULL_MOST_HELD
    if not most:
        return wanted
    held = JobImage.objects.filter(state=ImageState.CLAIMED, lease_expires_at__gt=Now(), claimed_by=client)
    held = held.exclude(job=job)
    left = most - held[:most].count()
    if left < wanted:
        posted = StoredResult.objects.filter(
            job=OuterRef("job"), reply_subject=OuterRef("reply_subject"), handled_at=None
        )
        left = most - held.filter(~Exists(posted))[:most].count()
    return max(0, min(wanted, left))
