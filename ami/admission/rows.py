"""Calls and runs in the database, behind the port of `ami.celery.staged_calls`."""

from typing import Any

from celery import current_app

from ami.admission import call_stager, groups, notifier, runs
from ami.admission.policies import policy_of
from ami.celery.staged_calls import Begun, Next, Note


class DatabaseAdmission:
    """Implements `ami.celery.staged_calls.Admission`."""

    def call(self, app: Any, task: Any, args: Any, kwargs: Any, options: dict[str, Any], due: float) -> Any:
        return call_stager.stage(app, task, args, kwargs, options, due)

    def adopt(self, task: Any, args: Any, kwargs: Any) -> None:
        call_stager.adopt(task, args, kwargs)

    def begin(self, task: Any, run: str, delivery: str, task_id: str) -> Begun | None:
        return runs.begin(task, run, delivery, task_id)

    def end(self, task: Any, begun: Begun, following: Next | None) -> bool:
        is_mine = runs.end(task, begun, following)
        if is_mine and (not task.has_policy or task.unique or task.permits or task.group_by or task.in_order_by):
            notifier.notify(task.app)  # Its key or its permit is free: of which version, only its row knows.
        return is_mine

    def split(self, task: Any, begun: Begun) -> bool:
        policy = policy_of(task)
        is_split = policy is not None and groups.split(task, policy, begun.run, begun.delivery)
        if is_split:
            notifier.notify(task.app)
        return is_split

    def wait_again(self, note: Note) -> None:
        runs.settle(current_app, note)

    def holds(self, begun: Begun) -> bool:
        return runs.holds(begun)


#: This process's, which `config` connects.
ADMISSION = DatabaseAdmission()
