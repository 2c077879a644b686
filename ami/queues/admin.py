"""The schedule in the admin: "run selected tasks" is a person's wish, not a tick."""

import json

from celery import current_app
from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest
from django_celery_beat.admin import PeriodicTaskAdmin as BeatPeriodicTaskAdmin
from django_celery_beat.models import PeriodicTask

from ami.queues.answering import tell
from ami.queues.asking import ask
from ami.queues.choosing import chosen
from ami.queues.tasks_table import load_tasks

admin.site.unregister(PeriodicTask)


@admin.register(PeriodicTask)
class PeriodicTaskAdmin(BeatPeriodicTaskAdmin):
    """django-celery-beat's admin, with its "run selected tasks" replaced: that one marks a click like a tick.

    Its other actions name no permission, so that who may only look could switch the schedule off; here they do.
    """

    change_form_template = "admin/queues/periodic_task.html"
    actions = ("enable_tasks", "disable_tasks", "toggle_tasks", "run_tasks")
    enable_tasks = admin.action(permissions=["change"])(BeatPeriodicTaskAdmin.enable_tasks)
    disable_tasks = admin.action(permissions=["change"])(BeatPeriodicTaskAdmin.disable_tasks)
    toggle_tasks = admin.action(permissions=["change"])(BeatPeriodicTaskAdmin.toggle_tasks)

    @admin.action(description="Run selected tasks now", permissions=["change"])
    def run_tasks(self, request: HttpRequest, queryset: QuerySet[PeriodicTask]) -> None:
        """Publish each selected entry's task on behalf of the person who clicked."""
        load_tasks()
        for entry in chosen(request, queryset):
            task = current_app.tasks.get(entry.task)
            if task is None:
                messages.error(request, f"{entry.task} is not registered; nothing was sent.")
                continue
            try:
                asked = ask(task, *json.loads(entry.args or "[]"), **json.loads(entry.kwargs or "{}"))
            except (TypeError, ValueError) as error:
                messages.error(request, f"{entry.name}: its arguments do not fit {entry.task}: {error}")
                continue
            tell(request, entry.task, asked)
