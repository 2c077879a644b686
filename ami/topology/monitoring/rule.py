"""One alert rule, as Prometheus reads it."""

from dataclasses import dataclass
from typing import Any, Literal

from ami.topology.monitoring.metrics import QUEUE

Severity = Literal["critical", "warning"]


@dataclass(frozen=True)
class Rule:
    """``expr`` is true where the alert is due, for as long as ``lasts``; ``chapter`` is a page and its heading.

    ``queue`` is the queue of a rule about one row: without that label the rules of two rows would look the same.
    Texts are templates of Prometheus: ``{{ $labels.queue_name }}``.
    """

    alert: str
    expr: str
    lasts: str
    severity: Severity
    summary: str
    description: str
    chapter: str
    queue: str = ""

    def as_dict(self, runbook: str) -> dict[str, Any]:
        """Return the rule; ``runbook`` is the absolute address of the handbook, empty where that is unknown."""
        return {
            "alert": self.alert,
            "expr": self.expr,
            "for": self.lasts,
            "labels": {"severity": self.severity, **({QUEUE: self.queue} if self.queue else {})},
            "annotations": {
                "summary": self.summary,
                "description": self.description,
                **({"runbook_url": f"{runbook.rstrip('/')}/{self.chapter}"} if runbook else {}),
            },
        }
