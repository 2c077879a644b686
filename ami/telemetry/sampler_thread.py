"""Runs the sampler in a process that has no worker's or beat's threads."""

import threading
import time

from celery import current_app
from celery.utils.log import get_logger
from django.db import Error

from ami.celery.thread_database import short_connection
from ami.queues import startup
from ami.telemetry.sampler import Sampler

logger = get_logger(__name__)

TURN_SECONDS = 1.0
#: Web's first process imports this before the others are forked; one that replaces another later is not new.
IMPORTED_AT, NEW_SECONDS = time.monotonic(), 60.0


def start(name: str) -> None:
    """Take part in the sampling under ``name``, in a thread that keeps no process from ending."""
    threading.Thread(target=_run, args=(name,), name="sampler", daemon=True).start()


def _run(name: str) -> None:
    sampler = Sampler()
    if time.monotonic() - IMPORTED_AT < NEW_SECONDS:
        try:
            with short_connection():
                startup.begin_unless_running()
        except Error as error:
            logger.debug("Start not noted: %s", str(error).partition("\n")[0])
    while True:
        time.sleep(TURN_SECONDS)
        try:
            sampler.turn(current_app, name)
        except Exception:
            logger.exception("Sampler failed; trying again")
