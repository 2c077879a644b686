"""Leaves the demo running after its checks, and prints where to look."""

from __future__ import annotations

import time
from pathlib import Path

from rich.console import Console

from demo.environment import Environment
from demo.processes import ProcessEnded, Processes
from demo.project import DemoProject

LOOK_SECONDS = 0.5


def until_interrupted(
    console: Console, environment: Environment, demo: DemoProject, report: Path, processes: Processes
) -> None:
    """Print the addresses and the login, and return after Ctrl-C. A process that ends meanwhile is named."""
    web = environment.web
    shown = (
        ("queues", f"{web}/admin/queues/"),
        ("admin", f"{web}/admin/"),
        ("API", f"{web}/api/v2/"),
        ("report", report.as_uri()),
        ("sign in", f"{demo.owner.email}   password: {demo.password}"),
        ("logs", str(environment.folder / "logs")),
    )
    console.print("\n[bold]It goes on running.[/bold] Ctrl-C stops all of it.")
    for name, text in shown:
        console.print(f"  {name:<8} {text}", highlight=False, markup=False, soft_wrap=True)
    try:
        while True:
            time.sleep(LOOK_SECONDS)
            _name_ended(console, processes)
    except KeyboardInterrupt:
        console.print("Stopping all processes.")


def _name_ended(console: Console, processes: Processes) -> None:
    for process in list(processes.running):
        try:
            process.check()
        except ProcessEnded as error:
            console.print(str(error), highlight=False, markup=False, soft_wrap=True)
            processes.running.remove(process)
