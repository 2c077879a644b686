"""Imports in a worker's parent what was deferred and its tasks will need: its children share the parent's pages."""

from typing import Any

from celery.signals import worker_init

from ami.environment import deferred


@worker_init.connect(dispatch_uid="antenna_shared_imports")
def import_deferred(**_: Any) -> None:
    deferred.load()
