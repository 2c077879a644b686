"""Findings about calls with a policy that do not reach the broker."""

from collections import defaultdict
from collections.abc import Iterator

from ami.admission import unsent_calls
from ami.admission.unsent_calls import Unsent
from ami.queues import start_commands
from ami.queues.diagnostics.finding import Finding


def findings() -> Iterator[Finding]:
    """Yield one finding for each queue whose calls are not sent. Raises django.db.Error."""
    by_queue = defaultdict(list)
    for unsent in unsent_calls.read():
        by_queue[unsent.queue].append(_sentence(unsent))
    for queue, sentences in by_queue.items():
        yield Finding("error", "calls-unsent", " ".join(sentences), queue)


def _sentence(unsent: Unsent) -> str:
    calls = f"{unsent.calls} calls" if unsent.calls > 1 else "1 call"
    since = f"for {(unsent.now - unsent.first).total_seconds():.0f} s"
    if unsent.is_unconfirmed:
        remedy = "is the broker up, and its disk and memory free? The log of the worker that dispatches says why"
        return f"{unsent.queue}: the broker has not confirmed {calls} that were sent, {since}; {remedy}."
    remedy = f"start one, of any queue: '{start_commands.of_workers()}'"
    return f"{unsent.queue}: no worker dispatches it, and {calls} were to be sent, {since}; {remedy}."
