"""A folder in which records of failures wait for the database: one file each, written whole, bounded in number.

It is in the worker's state folder, so that what could not be written is written by the worker's next start.
"""

import json
import os
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

from celery.signals import worker_init
from celery.utils.log import get_logger

from ami.celery import worker_records
from ami.celery.failures.record import Failure

logger = get_logger(__name__)

#: Beyond so many a new record is dropped: the database has been away for long, or everything fails.
MOST_FILES = 2000
#: A process counts the files at its first record, and then so often.
COUNT_EVERY = 50
MOST_BYTES = 512 * 1024
SUFFIX = ".json"
#: Files of records that the database refused as data; so many are kept, for the reader of the log.
REFUSED, MOST_REFUSED = ".refused", 100


class Spool:
    """The records in ``folder``. Any process of the worker adds; one thread of its parent takes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._numbers = count()

    def add(self, failure: Failure) -> bool:
        """Keep a record; False where the folder is full or cannot be written to, which is logged."""
        number = next(self._numbers)
        if number % COUNT_EVERY == 0 and len(self._names()) >= MOST_FILES:
            logger.warning("Cause of a failure not kept: %d wait for the database", MOST_FILES)
            return False
        # In the order of their failures; the parent and its children use one folder.
        name = f"{failure.failed_at:017.6f}-{os.getpid()}-{number}"
        try:
            made = f"{self.folder}/.{name}"
            descriptor = os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(json.dumps(vars(failure)).encode())
            os.replace(made, f"{self.folder}/{name}{SUFFIX}")
        except OSError as error:
            logger.warning("Cause of a failure not kept: %r", error, extra={"task_id": failure.task_id})
            return False
        return True

    def read(self, most: int) -> list[tuple[str, Failure | None]]:
        """Return the names and records of the oldest files; None for one that was not written here."""
        return [(name, self._load(name)) for name in sorted(self._names())[:most]]

    def remove(self, names: Sequence[str]) -> None:
        for name in names:
            with suppress(OSError):
                (self.folder / name).unlink()

    def set_aside(self, name: str) -> None:
        """Keep a record that the database refuses, where it is not read again, instead of the oldest such one."""
        with suppress(OSError):
            os.replace(self.folder / name, self.folder / name.replace(SUFFIX, REFUSED))
        self.remove(sorted(self._names(REFUSED))[:-MOST_REFUSED])

    def _names(self, suffix: str = SUFFIX) -> list[str]:
        with suppress(OSError):
            return [entry.name for entry in os.scandir(self.folder) if entry.name.endswith(suffix)]
        return []

    def _load(self, name: str) -> Failure | None:
        try:
            if (self.folder / name).stat().st_size > MOST_BYTES:
                return None
            return Failure(**json.loads((self.folder / name).read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            return None


_spool: Spool | None = None


def current() -> Spool | None:
    """Return the spool of this process's worker; None in no worker."""
    return _spool


def install(app: Any) -> None:
    """Give every worker of ``app`` that has a database a spool, before its children are forked."""

    def make(sender: Any = None, **_: Any) -> None:
        global _spool
        if sender.app is app and worker_records.connected() is not None:
            _spool = _made(sender)

    worker_init.connect(make, weak=False, dispatch_uid=f"failures.{id(app)}")


def _made(worker: Any) -> Spool | None:
    plan = getattr(worker, "governor_plan", None)
    if plan is None:
        return Spool(Path(tempfile.mkdtemp(prefix="antenna-failures-")))
    folder = plan.settings.state_folder(worker.hostname) / "failures"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        logger.warning("Causes of failures are not kept: %r", error)
        return None
    return Spool(folder)
