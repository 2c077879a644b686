"""``python -m tests.support.forking_writer N``: fork N children while a thread writes to the database.

Each child reads and writes through a connection of its own and exits; one that hangs or fails is counted. Prints JSON.
"""

import json
import os
import signal
import sys
import threading

import django

CHILD_SECONDS = 15


def main(count: int) -> None:
    from django.db import connections
    from django.db.models.functions import Now

    from ami.celery.thread_database import short_connection
    from ami.queues.models import Lease

    stopped, writes, errors = threading.Event(), 0, 0

    def write() -> None:
        nonlocal writes, errors
        while not stopped.is_set():
            try:
                with short_connection():
                    Lease.objects.update_or_create(name="forks", defaults={"holder": "parent", "until": Now()})
                writes += 1
            except django.db.Error:
                errors += 1

    connections.close_all()
    thread = threading.Thread(target=write, daemon=True)
    thread.start()
    failed = sum(not _forked() for _ in range(count))
    stopped.set()
    thread.join(10)
    print(json.dumps({"children": count, "failed": failed, "writes": writes, "errors": errors}))


def _forked() -> bool:
    """Fork a child that reads and writes; return whether it ended well in time."""
    pid = os.fork()
    if pid:
        return os.waitpid(pid, 0)[1] == 0
    signal.alarm(CHILD_SECONDS)  # Its default action ends a child that hangs.
    try:
        from django.db.models.functions import Now

        from ami.queues.models import Lease

        Lease.objects.update_or_create(name=f"child {os.getpid() % 7}", defaults={"holder": "child", "until": Now()})
        os._exit(0 if Lease.objects.exists() else 3)
    except BaseException as error:
        print(repr(error), file=sys.stderr)
        os._exit(4)


if __name__ == "__main__":
    django.setup()
    main(int(sys.argv[1]))
