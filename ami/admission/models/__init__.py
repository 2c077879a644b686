"""The rows of admission."""

from ami.admission.models.call import Call
from ami.admission.models.dispatcher_lease import DispatcherLease
from ami.admission.models.limits import Bucket, RecentKey, Reservation, Share
from ami.admission.models.outcome import Outcome
from ami.admission.models.run import Run

__all__ = ["Bucket", "Call", "DispatcherLease", "Outcome", "RecentKey", "Reservation", "Run", "Share"]
