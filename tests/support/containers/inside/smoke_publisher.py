"""Publishes tasks as the deployment's own processes do, and prints what became of each; runs in one of its containers.

`python -m smoke_publisher TASK PREFIX COUNT PACE QUEUE... [NAME=NUMBER...]` sends the keys PREFIX-0, PREFIX-1... in
turns to the queues, PACE seconds apart, until there are COUNT of them or standard input ends. One JSON object a line.
A key that was not confirmed may have arrived all the same, so it is never sent again: only what was confirmed counts.
"""

import json
import os
import select
import sys
import time
from typing import Any

import django

# Standard input, and not its file object: what a buffer holds, select does not see.
STDIN = 0


def main(task: str, prefix: str, count: int, pace: float, queues: list[str], kwargs: dict[str, float]) -> None:
    """Publish until told to stop."""
    from config.celery_app import app

    for number in range(count):
        if select.select([STDIN], [], [], pace)[0] and not os.read(STDIN, 1):
            return
        key, queue = f"{prefix}-{number}", queues[number % len(queues)]
        began = time.monotonic()
        try:
            app.send_task(task, kwargs={"key": key, **kwargs}, queue=queue, retry=False)
        except Exception as error:
            say(key=key, refused=type(error).__name__, why=str(error), seconds=time.monotonic() - began)
        else:
            say(key=key, queue=queue, seconds=time.monotonic() - began)


def say(**fields: Any) -> None:
    print(json.dumps(fields), flush=True)


if __name__ == "__main__":
    django.setup()
    named = [word for word in sys.argv[5:] if "=" not in word]
    numbers = {name: float(value) for name, _, value in (word.partition("=") for word in sys.argv[5:] if "=" in word)}
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4]), named, numbers)
