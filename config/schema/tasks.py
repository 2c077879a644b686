"""Which tasks exist, where their results go, and how long a process waits for its services."""

from typing import Annotated

from pydantic import AfterValidator

from ami.environment.declaration import Names, Variables, variable


def _module_names(entries: tuple[str, ...]) -> tuple[str, ...]:
    for entry in entries:
        if not all(part.isidentifier() for part in entry.split(".")):
            raise ValueError(f"has the entry '{entry}', which is not a module; write it like demo.tasks,other.tasks.")
    return entries


class Tasks(Variables):
    """Tasks"""

    antenna_task_events: bool = variable(True, "Whether workers send events, from which Flower lists tasks.")
    antenna_extra_tasks: Annotated[Names, AfterValidator(_module_names)] = variable(
        (), "Further modules with tasks, separated by commas."
    )
    antenna_wait_seconds: int = variable(
        120,
        "Seconds that `python -m config.waiting` waits for services and migrations before it gives up; 0: none.",
        low=0,
        high=3600,
    )
    antenna_keepalive_seconds: int = variable(
        60,
        "Idle seconds after which a connection to RabbitMQ, Redis, PostgreSQL or NATS sends a packet to stay open; "
        "less than a firewall's limit for idle connections.",
        low=1,
        high=3600,
    )
    celery_result_backend: str = variable(
        "",
        "Where task results are stored; not set: REDIS_URL, or the database where that is empty.",
        secret=True,
        example="redis://:PASSWORD@redis:6379/1",
    )
    antenna_rescue_webhook_url: str = variable(
        "",
        "Where a dead worker is reported as JSON, for a host's supervisor; empty: nowhere.",
        secret=True,
        example="https://supervisor.example.org/hooks/antenna",
        schemes=("http", "https"),
    )
    antenna_collect_letters: bool = variable(
        True, "Whether dead letters are taken out of their queues into the database, which keeps them for 30 days."
    )
    antenna_letter_days: int = variable(
        30, "Days for which a dead letter is kept after its last death, whatever became of it.", low=1, high=3650
    )
    antenna_audit_days: int = variable(
        365,
        "Days for which the audit log keeps what users did, and counts of refused requests; longer for a state that is "
        "in force.",
        low=1,
        high=36_500,
    )
    antenna_admin_history_days: int = variable(
        365, "Days for which the admin's History pages keep an entry.", low=1, high=36_500
    )
    antenna_job_log_days: int = variable(
        90,
        "Days for which the log of a job that is over is kept; of each job at most the newest 10,000 lines.",
        low=1,
        high=36_500,
    )
    antenna_export_days: int = variable(
        365,
        "Days for which an export of a schedule and its file are kept; the last one stays, and so does what a user "
        "asked for.",
        low=1,
        high=36_500,
    )
    antenna_letter_minutes: int = variable(
        60,
        "Dead letters that died in so many minutes count as new: `queues letters check` names them.",
        low=1,
        high=10_080,
    )
    antenna_sensitive_names: Names = variable(
        (), "Names of arguments whose values are masked in every task, separated by commas; a task can declare its own."
    )
    antenna_process_seconds: int = variable(
        120,
        "Seconds that a processing service that Antenna calls has for one batch; with 90 s for a cold start less than "
        "the soft time limit of the queues that run jobs.",
        low=1,
        high=400,
    )
    nats_task_ttr: int = variable(
        300, "Seconds until NATS delivers a task of a processing service again.", low=1, high=86_400
    )
    nats_max_deliver: int = variable(2, "The maximum number of deliveries of a task by NATS.", low=1, high=100)
    nats_max_extensions: int = variable(
        9,
        "How often the polls and results of a processing service extend the wait of a task that it holds, at least a "
        "third of NATS_TASK_TTR apart; 0: never.",
        low=0,
        high=1000,
    )
    antenna_counts_seconds: int = variable(
        15,
        "Seconds after a change until the counts of its sessions and stations are corrected, once for all changes.",
        low=1,
        high=3600,
    )
    antenna_pull_turn_seconds: int = variable(
        60,
        "Seconds after which a pull job hands out no images, so that its workers turn to another running job of its "
        "pipeline that waits; 0: never.",
        low=0,
        high=86_400,
    )
    antenna_pull_most_held: int = variable(
        200,
        "Images that a pull worker which names itself holds when it is handed some of another job: with those, at most "
        "so many; 0: no limit.",
        low=0,
        high=1_000_000,
    )
    nats_max_ack_pending: int = variable(
        1000, "The maximum number of unacknowledged tasks of one job.", low=1, high=1_000_000
    )
