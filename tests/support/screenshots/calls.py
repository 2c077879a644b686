"""Calls of tasks with a policy: some wait, some run, some were merged, and limits that an operator has changed."""

import random
from datetime import timedelta
from typing import Any

from django.utils import timezone

from ami.admission.models import Call, Outcome, Run
from ami.queues.models import DesiredState

EXPORT = "ami.exports.tasks.run_export"
REGROUP = "ami.main.tasks.regroup_events"
SYNC = "ami.main.tasks.sync_source_images"
INTERACTIVE, HOUSEKEEPING = "antenna-interactive", "antenna-housekeeping"


def add(rng: random.Random) -> None:
    """Write calls of three tasks, and who changed what."""
    for project, waiting, running in ((7, 12, 2), (3, 4, 1), (18, 1, 0)):
        permit = {"permit_key": f"{EXPORT}:{project}", "lane": f"project_id={project}|{EXPORT}:{project}|"}
        permit["fair_key"] = f"project_id={project}"
        for number in range(running):
            _running(_call(rng, EXPORT, INTERACTIVE, f"export {project}{number}", **permit), number + 1, rng)
        for number in range(waiting):
            _call(rng, EXPORT, INTERACTIVE, f"export {project}9{number}", **permit)
    for station in (4, 11, 12):
        call = _call(rng, REGROUP, HOUSEKEEPING, f'{{"deployment_id":{station},"project_id":7}}')
        if station != 12:
            _running(call, None, rng)
        _call(rng, REGROUP, HOUSEKEEPING, f'{{"deployment_id":{station},"project_id":7}}')
    _call(rng, SYNC, HOUSEKEEPING, '{"deployment_id":4,"project_id":7}')
    hour = timezone.now().replace(minute=0, second=0, microsecond=0)
    for task, why, count, ago in (
        (REGROUP, Outcome.Why.MERGED, 214, 0),
        (SYNC, Outcome.Why.RAN, 31, 2),
        (EXPORT, Outcome.Why.EXPIRED, 3, 9),
    ):
        Outcome.objects.create(task=task, why=why, calls=count, hour=hour - timedelta(hours=ago))
    wish = {"by": "user 4 Ines", "since": timezone.now() - timedelta(hours=3)}
    kinds, aspects = DesiredState.Kind, DesiredState.Aspect
    DesiredState.objects.create(
        kind=kinds.PERMITS, name=EXPORT, aspect=aspects.MOST, value=3, why="a larger machine", **wish
    )
    DesiredState.objects.create(
        kind=kinds.FAIR_KEY, name="project_id=7", aspect=aspects.WEIGHT, value=3, why="the season's survey", **wish
    )


def _call(rng: random.Random, task: str, queue: str, key: str, **fields: Any) -> Call:
    task_id = f"{rng.getrandbits(64):016x}"
    made = Call(task_id=task_id, task=task, queue=queue, key=f"{task}:{key}:{task_id}", key_text=key, **fields)
    made.arguments, made.options = "[[], {}]", "{}"
    made.created_at = timezone.now() - timedelta(seconds=rng.uniform(5, 400))
    made.save(force_insert=True)
    return made


def _running(call: Call, number: int | None, rng: random.Random) -> None:
    began = timezone.now() - timedelta(seconds=rng.uniform(3, 90))
    run = Run(pk=f"{call.pk:032x}", call=call.pk, task=call.task, queue=call.queue, key=call.key, state="running")
    run.permit_key, run.permit_number = call.permit_key or None, number
    run.worker, run.began_at, run.send_again_at = "interactive@antenna-worker-1#1f4c", began, began
    run.save(force_insert=True)
    Call.objects.filter(pk=call.pk).update(run=run.pk)
