"""Keeps the memory that a worker shares with its children shared."""

import gc
from typing import Any

from celery.signals import worker_before_create_process

_UID = "governor.shared_memory"


def keep_shared() -> None:
    """Exempt what exists before the first fork from garbage collection, in the worker and in its children.

    A full collection writes to the header of every object, so that the kernel copies each page of it that is shared:
    worker and children would each grow by tens of megabytes once. See ``gc.freeze`` in Python's documentation.
    """
    worker_before_create_process.disconnect(dispatch_uid=_UID)
    worker_before_create_process.connect(_freeze, weak=False, dispatch_uid=_UID)


def _freeze(**_: Any) -> None:
    # Once: at a later fork there are requests on their way, whose cycles would never be collected.
    worker_before_create_process.disconnect(dispatch_uid=_UID)
    gc.collect()
    gc.freeze()
