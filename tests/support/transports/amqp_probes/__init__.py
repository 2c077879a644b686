"""What clients do with a broker, as small functions: each returns what it saw, to be compared between two brokers."""

from tests.support.transports.amqp_probes import bindings, consuming, dead_letters, declarations, publishing
from tests.support.transports.amqp_probes.session import PROBES as PROBES
from tests.support.transports.amqp_probes.session import Session as Session

__all__ = ["PROBES", "Session", "bindings", "consuming", "dead_letters", "declarations", "publishing"]
