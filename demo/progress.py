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

LINE_SECONDS = 5.0
POLL_SECONDS = 1.0


class StepTimeout(Exception):
    """A step of the demo did not finish in time; the message names it."""


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

    def until(self, what: str, condition: Callable[[], Any], seconds: float, stages: Callable[[], Any] = list) -> Any:
        """Wait for ``condition`` and show queues and ``stages``; return its first true result.

        Raises:
            StepTimeout: ``condition`` was not true within ``seconds``.
            ProcessEnded: a process of the demo ended.
        """
        deadline, last_line = time.monotonic() + seconds, time.monotonic()
        with Live(console=self.console, refresh_per_second=4, transient=True) as live:
            while not (answer := condition()):
                self._processes.check()
                if time.monotonic() > deadline:
                    raise StepTimeout(f"{what}: not finished within {seconds:.0f} s. Queues: {self._depths()}")
                if self.console.is_terminal:
                    live.update(self._render(what, stages()))
                elif time.monotonic() - last_line >= LINE_SECONDS:
                    last_line = time.monotonic()
                    self.say(f"{what}: {_stage_line(stages())} waiting: {_depth_line(self._depths())}")
                time.sleep(POLL_SECONDS)
        return answer

    def _render(self, what: str, stages: list[dict[str, Any]]) -> Group:
        queues = Table("queue", "waiting", box=None, pad_edge=False)
        for queue, depth in self._depths().items():
            queues.add_row(queue, str(depth))
        bars = Table("stage", "", "%", box=None, pad_edge=False)
        for stage in stages:
            bars.add_row(stage["name"], ProgressBar(1.0, stage["progress"], width=40), f"{stage['progress']:.0%}")
        return Group(what, bars, queues)


def _stage_line(stages: list[dict[str, Any]]) -> str:
    return ", ".join(f"{stage['key']} {stage['progress']:.0%}" for stage in stages) or "..."


def _depth_line(depths: dict[str, int]) -> str:
    return ", ".join(f"{queue} {depth}" for queue, depth in depths.items())
