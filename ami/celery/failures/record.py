"""What is kept of a try that failed: the exception, where in the code, what it ran on, and for how long."""

import re
import socket
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ami.celery import storable

LONGEST_MESSAGE, LONGEST_TRACEBACK = 2000, 20_000
#: Code that is not ours: the place of a failure is the deepest frame outside of it.
FOREIGN = re.compile(r"/(?:site|dist)-packages/|/lib/python3\.\d+/|^<frozen ")
#: Roots that a path in a record is shown below.
_ROOT = str(Path(__file__).resolve().parents[3]) + "/"


@dataclass(frozen=True)
class Failure:
    """One try. ``task_id``, ``retries`` and ``delivery`` name it; times in epoch seconds of the worker's machine.

    ``kind`` is one of `KINDS`, ``place`` is ``file:line in function``, empty where no code of the task failed;
    ``seconds`` is how long the try ran and ``peak_kib`` the most memory that its process had, both 0 where unknown.
    """

    task_id: str
    retries: int
    delivery: int
    task: str
    kind: str
    exception: str
    message: str
    place: str
    traceback: str
    node: str
    host: str
    pid: int
    failed_at: float
    seconds: float = 0.0
    peak_kib: int = 0


#: ``error``: the task raised; ``retry``: it raised and is tried again; ``refused``, ``expired`` and ``cancelled``: it
#: did not begin; the others ended its process.
KINDS = ("error", "retry", "time limit", "process lost", "memory", "stalled", "refused", "expired", "cancelled")


def delivery_of(headers: Any, delivery_info: Any) -> int:
    """Return how often the message was delivered before, as far as the broker tells: 1 if it only says that it was."""
    count = storable.count(headers.get("x-delivery-count")) if headers else 0  # Any publisher can write it.
    return count or int(bool((delivery_info or {}).get("redelivered")))


def name_of(error: BaseException) -> str:
    """Return an exception's name as it is written in code; a builtin one without its module."""
    kind = type(error)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def text_of(error: BaseException) -> str:
    """Return an exception's message, bounded; one that cannot be read is said to be so."""
    try:
        return str(error)[:LONGEST_MESSAGE]
    except Exception as unreadable:  # Any code of the exception's class.
        return f"(its message cannot be read: {type(unreadable).__name__})"


def place_of(error: BaseException) -> str:
    """Return the deepest frame of the error's traceback in the project's code; in any code if there is none."""
    frames = list(traceback.walk_tb(error.__traceback__))
    own = [each for each in frames if not FOREIGN.search(each[0].f_code.co_filename)]
    if not (frames := own or frames):
        return ""
    frame, line = frames[-1]
    code = frame.f_code
    return f"{code.co_filename.removeprefix(_ROOT)}:{line} in {code.co_qualname}"[:255]


def traceback_of(error: BaseException) -> str:
    """Return the formatted traceback without the values of variables; of a long one the beginning and the end."""
    return shortened("".join(traceback.format_exception(error)))


def shortened(text: str) -> str:
    if len(text) <= LONGEST_TRACEBACK:
        return text
    half = LONGEST_TRACEBACK // 2
    return f"{text[:half]}\n... {len(text) - 2 * half} characters left out ...\n{text[-half:]}"


def host() -> str:
    return socket.gethostname()
