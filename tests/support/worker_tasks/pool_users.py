"""Uses a worker's pool of broker connections beside its dispatcher, as sweeps, broadcasts and slices do."""

import threading
from contextlib import ExitStack
from typing import Any

from celery.signals import worker_ready

from ami.queues import slices
from tests.support.worker_tasks import admitted

PAUSE_SECONDS = 0.1
#: After an error nothing here mends what it has left in the pool.
REST_SECONDS = 60.0


@worker_ready.connect
def use_pool(sender: Any = None, **_: Any) -> None:
    """Start to use the pool of the worker that is ready."""
    threading.Thread(target=_use, args=(sender.app,), name="pool users", daemon=True).start()


def _use(app: Any) -> None:
    uses = (
        lambda: app.control.ping(timeout=0.2),
        lambda: app.control.broadcast("ping"),
        lambda: admitted.plain.delay(0),
        lambda: slices.others_wait(admitted.plain),
        lambda: _use_several(app),
    )
    pause = threading.Event()
    while True:
        has_failed = False
        for use in uses:
            try:
                use()
            except Exception:
                has_failed = True
            pause.wait(PAUSE_SECONDS)
        if has_failed:
            pause.wait(REST_SECONDS)


def _use_several(app: Any) -> None:
    with ExitStack() as stack:
        for each in [stack.enter_context(app.connection_or_acquire()) for _ in range(4)]:
            each.default_channel  # noqa: B018 - it connects
