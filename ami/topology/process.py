"""The kinds of processes of the application, and the variable that says which one a process is."""

from typing import Literal, get_args

from ami.environment.declaration import Variables, of, variable

Kind = Literal["web", "worker", "beat", "flower", "setup"]
PROCESSES: tuple[Kind, ...] = get_args(Kind)


class Process(Variables):
    """Which process this is"""

    antenna_process: Kind | None = variable(
        None,
        "Which process this is; it decides what is required. Set by the compose files and the start commands; not set: "
        "all is required.",
    )


#: The variable's name.
PROCESS = of(Process, "antenna_process").name
