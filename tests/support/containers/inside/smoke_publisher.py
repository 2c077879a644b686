"""Publishes tasks as the deployment's own processes do, and prints what became of each; runs in one of its containers.

`python -m smoke_publisher` reads one JSON object a line. `{"begin": PREFIX, "task": ..., "count": ..., "pace": ...,
"queues": [...], "kwargs": {...}}` starts a process that sends the keys PREFIX-0, PREFIX-1... in turns to the queues,
`pace` seconds apart, until there are `count` of them or `{"stop": PREFIX}` is read. It prints one JSON object a line,
and `{"over": PREFIX, "status": ...}` when that process has ended. Each process is forked from one that has imported
everything and has no connection. A key that was not confirmed may have arrived all the same, so it is never sent again:
only what was confirmed counts.
"""

import json
import os
import select
import time
import traceback
from typing import Any, NamedTuple

import django

# Standard input, and not its file object: what a buffer holds, select does not see.
STDIN, STDOUT = 0, 1


class Running(NamedTuple):
    """A process that publishes: it reads ``stopped``, of which ``stop`` is the other end; ``alive`` ends with it."""

    pid: int
    stopped: int
    stop: int
    alive: int


def main() -> None:
    """Do what standard input says, until it ends and every process has."""
    running: dict[str, Running] = {}
    rest, reading = b"", True
    while reading or running:
        watched = [one.alive for one in running.values()] + ([STDIN] if reading else [])
        ready = select.select(watched, [], [])[0]
        if STDIN in ready:
            read = os.read(STDIN, 65536)
            reading = bool(read)
            *lines, rest = (rest + read).split(b"\n")
            for line in lines:
                obey(json.loads(line), running)
            if not reading:
                for prefix in running:
                    obey({"stop": prefix}, running)
        for prefix in [prefix for prefix, one in running.items() if one.alive in ready]:
            end(prefix, running.pop(prefix))


def obey(order: dict[str, Any], running: dict[str, Running]) -> None:
    """Start a process, or stop one that has not ended by itself."""
    if "begin" in order:
        running[order["begin"]] = begin(order)
    elif order["stop"] in running:
        os.write(running[order["stop"]].stop, b".")


def begin(order: dict[str, Any]) -> Running:
    """Fork a process that publishes."""
    (stopped, stop), (alive, dying) = os.pipe(), os.pipe()
    if pid := os.fork():
        os.close(dying)
        return Running(pid, stopped, stop, alive)
    try:
        publish(stopped, order["task"], order["begin"], order["count"], order["pace"], order["queues"], order["kwargs"])
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def end(prefix: str, ended: Running) -> None:
    """Reap a process, and say that it has ended."""
    for pipe in (ended.stopped, ended.stop, ended.alive):
        os.close(pipe)
    say(over=prefix, status=os.waitstatus_to_exitcode(os.waitpid(ended.pid, 0)[1]))


def publish(
    stopped: int, task: str, prefix: str, count: int, pace: float, queues: list[str], kwargs: dict[str, float]
) -> None:
    """Publish until told to stop."""
    from config.celery_app import app

    for number in range(count):
        if select.select([stopped], [], [], pace)[0]:
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
    """Print one line, in one piece: several processes write to this pipe."""
    os.write(STDOUT, json.dumps(fields).encode() + b"\n")


if __name__ == "__main__":
    django.setup()
    import config.celery_app  # noqa: F401 - once, and not in each process

    main()
