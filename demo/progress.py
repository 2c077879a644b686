"""The demo's progress: a live table on a terminal, plain lines in a pipe."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table

from demo.processes import Processes
from provision.patience import Patience, processor_seconds

LINE_SECONDS = 5.0
#: Processes that wait use a little of the processor, too: so many seconds of it are a sign that something moves.
WORK_SECONDS = 10
POLL_SECONDS = 1.0


class StepTimeout(Exception):
    """A step of the demo stands still; the message names it."""


class Progress:
    """Prints the demo's progress while it waits."""

    def __init__(self, console: Console, processes: Processes, depths: Callable[[], dict[str, int]]) -> None:
        self.console = console
        self._processes = processes
        self._depths = depths
        self._began = time.monotonic()

    def say(self, text: str) -> None:
        """Print a line with the seconds since the start."""
        seconds = time.monotonic() - self._began
        self.console.print(f"[dim]{seconds:6.1f} s[/dim]  {text}", highlight=False, soft_wrap=True)

    def until(self, what: str, condition: Callable[[], Any], stages: Callable[[], Any] = list) -> Any:
        """Wait for ``condition`` as long as something moves, and show queues and ``stages``; return its result.

        ``what``: what is waited for.

        Raises:
            StepTimeout: queues, ``stages`` and processes stood still.
            ProcessEnded: a process of the demo ended.
        """
        patience, last_line = Patience(), time.monotonic()
        with Live(console=self.console, refresh_per_second=4, transient=True) as live:
            while not (answer := condition()):
                self._processes.check()
                depths, shown = self._depths(), stages()
                if patience.is_over(depths, shown, processor_seconds() // WORK_SECONDS):
                    raise StepTimeout(f"{what}: nothing has moved for {patience.seconds:.0f} s. Queues: {depths}")
                if self.console.is_terminal:
                    live.update(self._render(what, shown, depths))
                elif time.monotonic() - last_line >= LINE_SECONDS:
                    last_line = time.monotonic()
                    self.say(f"waiting for {what}{_stage_line(shown)}; in the queues: {_depth_line(depths)}")
                time.sleep(POLL_SECONDS)
        return answer

    @staticmethod
    def _render(what: str, stages: list[dict[str, Any]], depths: dict[str, int]) -> Group:
        queues = Table("queue", "waiting", box=None, pad_edge=False)
        for queue, depth in depths.items():
            queues.add_row(queue, str(depth))
        bars = Table("stage", "", "%", box=None, pad_edge=False)
        for stage in stages:
            bars.add_row(stage["name"], ProgressBar(1.0, stage["progress"], width=40), f"{stage['progress']:.0%}")
        return Group(f"waiting for {what}", bars, queues)


def _stage_line(stages: list[dict[str, Any]]) -> str:
    parts = ", ".join(f"{stage['key']} {stage['progress']:.0%}" for stage in stages)
    return f" ({parts})" if parts else ""


def _depth_line(depths: dict[str, int]) -> str:
    return ", ".join(f"{queue} {depth}" for queue, depth in depths.items())
