"""The variables of a worker's health file and of the log of finished tasks."""

from ami.environment.declaration import Variables, variable


class TelemetryVariables(Variables):
    """What workers write about themselves"""

    antenna_pulse_file: str = variable(
        "",
        "The file that a worker touches while it is healthy; in containers /tmp/worker-pulse.",
        example="/tmp/worker-pulse",  # noqa: S108 - inside the worker's own container
        by_image=True,
    )
    antenna_journal_dir: str = variable(
        "", "The folder where each process writes a line per finished task, for the demo and the tests."
    )
