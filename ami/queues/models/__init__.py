"""What the queue operations keep in the database."""

from ami.queues.models.audit_entry import AuditEntry
from ami.queues.models.beat import Beat
from ami.queues.models.desired_state import DesiredState
from ami.queues.models.ended_worker import EndedWorker
from ami.queues.models.lease import Lease
from ami.queues.models.letter import Letter, LetterEvent
from ami.queues.models.refused_requests import RefusedRequests
from ami.queues.models.replay import Replay
from ami.queues.models.task_count import TaskCount
from ami.queues.models.task_failure import TaskFailure
from ami.queues.models.task_run import Fence, TaskRun
from ami.queues.models.tick_claim import TickClaim
from ami.queues.models.worker import Worker

__all__ = [
    "AuditEntry",
    "Beat",
    "DesiredState",
    "EndedWorker",
    "Fence",
    "Lease",
    "Letter",
    "LetterEvent",
    "RefusedRequests",
    "Replay",
    "TaskCount",
    "TaskFailure",
    "TaskRun",
    "TickClaim",
    "Worker",
]
