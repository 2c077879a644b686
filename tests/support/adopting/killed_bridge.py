"""Runs ``manage.py queues adopt`` again and again, each time until it kills itself at a given point; then to its end.

``python -m tests.support.adopting.killed_bridge '[["confirmed", 7], ...]' ARGV...`` sets Django up once and forks each
run. With ``-`` as the last argument there is no run to the end. A line of its output is a JSON object with the number
of kills.
"""

import json
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

#: Where a run may die, in the order in which a message passes: when it was read, counted, stored, confirmed by the
#: split, acknowledged to the old broker.
POINTS = ("read", "counted", "stored", "confirmed", "acknowledged")


def main(kills: list[tuple[str, int]], argv: list[str]) -> None:
    import django

    django.setup()
    ended = [_in_fork(lambda point=point, number=number: _die_at(point, number), argv) for point, number in kills]
    died = sum(os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL for status in ended)
    print(json.dumps({"kills": died}), flush=True)
    if argv[-1] != "-":
        sys.exit(os.waitstatus_to_exitcode(_in_fork(lambda: None, argv)))


def _in_fork(prepare: Callable[[], None], argv: list[str]) -> int:
    """Run the command in a child; return how that ended."""
    pid = os.fork()
    if not pid:
        from django.core.management import execute_from_command_line

        prepare()
        code = 0
        try:
            execute_from_command_line(["manage.py", "queues", "adopt", *(each for each in argv if each != "-")])
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else 1
        finally:
            sys.stdout.flush()
            os._exit(code)
    return os.waitpid(pid, 0)[1]


def _die_at(point: str, number: int) -> None:
    """Kill this process at the ``number``-th message that reaches ``point``."""
    from ami.adopt import bridge, old_broker, split, tally

    if point == "stored":
        _wrap(split, "publish", number, before=True)
    elif point == "confirmed":
        _wrap(bridge.Bridge, "_publish", number)
    else:
        owner: Any = {"read": old_broker.OldBroker, "acknowledged": old_broker.OldBroker, "counted": tally.Tally}[point]
        _wrap(owner, {"read": "get", "acknowledged": "acknowledge", "counted": "begin"}[point], number)


def _wrap(owner: Any, name: str, number: int, *, before: bool = False) -> None:
    function, calls = getattr(owner, name), iter(range(number - 1, -1, -1))

    def dying(*args: Any, **kwargs: Any) -> Any:
        is_last = next(calls) == 0
        if before and is_last:
            os.kill(os.getpid(), signal.SIGKILL)
        answer = function(*args, **kwargs)
        if is_last:
            os.kill(os.getpid(), signal.SIGKILL)
        return answer

    setattr(owner, name, dying)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]), sys.argv[2:])
