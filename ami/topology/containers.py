"""What all our containers share on every platform: the wait command, and the files for health checks."""

#: Waits for the services and logs which, then execs the command after it.
WAITING = ("python", "-m", "config.waiting", "python", "-m", "ami.topology")

#: Files that beat and workers touch at least every 5 s while they make progress. An older file means that the process
#: hangs, although it is alive (incident 17: 4.6 days).
TICK_FILE = "/tmp/beat-tick"  # noqa: S108 - inside beat's own container
PULSE_FILE = "/tmp/worker-pulse"  # noqa: S108 - inside the worker's own container
FRESH_SECONDS = 60
