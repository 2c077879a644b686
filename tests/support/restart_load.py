"""``python -m tests.support.restart_load``: calls tasks, and broadcasts beside, until SIGTERM, whatever is away.

It appends a line to the file ``calls`` before and after each call: one that raised an error may have been made.
"""

import itertools
import json
import os
import signal
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import django

FILE, PAUSE_SECONDS = "calls", 0.1


def called(folder: Path) -> tuple[dict[int, float], dict[int, float]]:
    """Return when each number was asked for, and when its call had been made; by the monotonic clock."""
    path = folder / FILE
    lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    asked, made = ({each["number"]: each["at"] for each in lines if each["what"] == what} for what in ("asked", "made"))
    return asked, made


def _write(file: Any, what: str, number: int) -> None:
    file.write(json.dumps({"what": what, "number": number, "at": time.monotonic()}).encode() + b"\n")


def _broadcast(app: Any) -> None:
    pause = threading.Event()
    while not pause.wait(PAUSE_SECONDS):
        with suppress(Exception):  # The broker is away, which takes a while.
            app.control.broadcast("ping")


def main() -> int:
    django.setup()
    from django.db import close_old_connections

    from config import celery_app
    from tests.support.worker_tasks import admitted

    stopped = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    threading.Thread(target=_broadcast, args=(celery_app,), daemon=True).start()
    with Path(os.environ["ANTENNA_TEST_FOLDER"], FILE).open("ab", buffering=0) as file:
        for number in itertools.count(1):
            _write(file, "asked", number)
            with suppress(Exception):
                close_old_connections()
                admitted.sent.delay(number, seconds=0.02)
                _write(file, "made", number)
            if stopped.wait(PAUSE_SECONDS):
                return 0
    return 1


if __name__ == "__main__":
    sys.exit(main())
