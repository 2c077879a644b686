"""Checks that a pushed batch ends before the soft time limit of the job's slice."""

from ami.ml.cold_start import COLD_START_SECONDS
from ami.topology.topology import Topology

RUNS_JOBS = "ami.jobs.tasks.run_job"
ORIGINS = ("person", "beat", "task", None)


def wrong(topology: Topology, seconds: int) -> str:
    """Return why ANTENNA_PROCESS_SECONDS is too long for a queue that runs jobs; empty if it is not."""
    rows = [topology.workload(topology.place(RUNS_JOBS, origin).queue) for origin in ORIGINS]
    row = min(rows, key=lambda each: each.soft_time_limit_seconds)
    limit = int(row.soft_time_limit_seconds - COLD_START_SECONDS)
    if seconds < limit:
        return ""
    name = f"ANTENNA_{row.key}_SOFT_TIME_LIMIT_SECONDS"
    return (
        f"ANTENNA_PROCESS_SECONDS ({seconds}) must be below {limit}: {row.queue} runs jobs with a soft time limit of "
        f"{row.soft_time_limit_seconds} s, of which a batch may wait {COLD_START_SECONDS:.0f} s for a cold start. "
        f"Lower it, or raise {name}."
    )
