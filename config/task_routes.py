"""Puts a deployment's own ``CELERY_TASK_ROUTES`` on top of the table, or stops the process with one sentence.

A settings module that begins with ``from config.settings.production import *`` replaces the router of ``base.py``. So
this runs when the settings are complete: while Django's apps start, and before Celery reads its configuration.
"""

from dataclasses import replace
from typing import Any

from celery import signals
from django.conf import settings

from ami.topology import task_routes
from ami.topology.errors import TopologyError
from ami.topology.router import TaskRouter
from config.settings.environment import refuse


def apply(**_: Any) -> None:
    """Complete the settings; again it changes nothing."""
    topology = settings.ANTENNA_TOPOLOGY
    try:
        rules = {**topology.routes, **task_routes.rules(settings.CELERY_TASK_ROUTES)}
        topology = replace(topology, routes=rules)
    except TopologyError as error:
        refuse(str(error))
    settings.ANTENNA_TOPOLOGY = topology
    settings.CELERY_TASK_ROUTES = (TaskRouter(topology),)


@signals.celeryd_init.connect(dispatch_uid="antenna_task_routes")
def refuse_ambiguous(instance: Any, **_: Any) -> None:
    """Refuse a worker with a task that two globs claim: it is the first that has imported every task."""
    for name in sorted(instance.app.tasks):
        try:
            settings.ANTENNA_TOPOLOGY.place(name)
        except TopologyError as error:
            refuse(str(error))
