"""Finds the job that a task belongs to."""

import re
from typing import Any

from django.db.models import Q
from django.http import HttpRequest

from ami.celery.disabled import JOB_ARGUMENT, job_number
from ami.jobs.models import Job

_ARGUMENT = re.compile(rf"['\"]{JOB_ARGUMENT}['\"]: ['\"]?(\d{{1,18}})\b")


def job_named(request: HttpRequest, arguments: str, number: str = "", task_id: str = "") -> Any:
    """Return the job that shown arguments name, or whose task this is; None where the user may not see jobs."""
    if not request.user.has_perm("jobs.view_job"):
        return None
    named = _ARGUMENT.search(arguments)
    key = job_number(number)[:18] or (job_number(named[1]) if named else "")
    which = Q(pk=int(key)) if key else Q(pk__in=())
    if task_id:
        which |= Q(task_id=task_id)
    return Job.objects.filter(which).only("pk", "name", "status", "job_type_key").first() if key or task_id else None
