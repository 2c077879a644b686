"""The kinds of processes of the application, and the variables that say which one a process is and what starts it."""

from typing import Literal, get_args

from ami.environment.declaration import Variables, of, variable

Kind = Literal["web", "worker", "beat", "flower", "setup"]
PROCESSES: tuple[Kind, ...] = get_args(Kind)
Starter = Literal["compose", "kubernetes", "make", "command"]


class Process(Variables):
    """Which process this is"""

    antenna_process: Kind | None = variable(
        None,
        "Which process this is; it decides what is required. Set by the compose files and the start commands; not set: "
        "all is required.",
    )
    antenna_started_by: Starter = variable(
        "command",
        "What starts the processes here: remedies name a Compose service, a Deployment or a command. Set by the "
        "compose files, the manifests and `make run`.",
    )


#: The variables' names.
PROCESS, STARTED_BY = (of(Process, name).name for name in ("antenna_process", "antenna_started_by"))
