"""Whether NATS, through which jobs hand out their images, answers."""

import socket
from collections.abc import Iterator
from urllib.parse import urlsplit

from django.conf import settings

from ami.celery.thread_database import database_block
from ami.jobs.models import Job
from ami.jobs.models.states import ACTIVE, DispatchMode
from ami.queues.diagnostics.finding import Finding

ANSWER_SECONDS = 2.0


def findings() -> Iterator[Finding]:
    """Yield a finding where NATS does not greet, if it is configured or a running job needs it."""
    if not settings.NATS_IS_CONFIGURED and not _is_needed():
        return
    parts = urlsplit(settings.NATS_URL)
    where = f"{parts.hostname}:{parts.port or 4222}"
    try:
        with (
            socket.create_connection((parts.hostname or "", parts.port or 4222), ANSWER_SECONDS) as server,
            server.makefile("rb") as lines,
        ):
            if lines.readline(64 * 1024).startswith(b"INFO "):
                return
            why = "what answers there is not NATS"
    except OSError as error:
        why = error.strerror or type(error).__name__
    yield Finding(
        "error",
        "nats-away",
        f"NATS at {where} does not answer ({why}): jobs hand out no images, and results wait. Start it, or correct "
        "NATS_URL.",
    )


def sentence(error: BaseException) -> str:
    """Return where NATS is, why it cannot be used, and the remedy."""
    return f"{str(error).removesuffix('.')}; start it or correct NATS_URL."


def _is_needed() -> bool:
    with database_block():
        return bool(Job.objects.filter(status__in=ACTIVE, dispatch_mode=DispatchMode.ASYNC_API).exists())
