"""What the queue operations keep in the database."""

from ami.queues.models.adoption import Adoption
from ami.queues.models.beat import Beat
from ami.queues.models.tick_claim import TickClaim

__all__ = ["Adoption", "Beat", "TickClaim"]
