"""The addresses of the console's lists, each behind the staff's sign-in."""

from django.contrib import admin
from django.urls import path

from ami.console import audit, handbook, letter, letters, schedule, task
from ami.console.page import guarded
from ami.console.pages.workers import WorkerPage, WorkersPage

_view = admin.site.admin_view

urlpatterns = [
    path("workers/", guarded(WorkersPage), name="workers"),
    path("workers/<str:name>/", guarded(WorkerPage), name="worker"),
    path("letters/", _view(letters.groups), name="letters"),
    path("letters/all/", _view(letters.all_letters), name="letter_list"),
    path("letters/cause/<str:cause>/", _view(letters.one_group), name="letter_group"),
    path("letters/<int:key>/", _view(letter.show), name="letter"),
    path("letters/<int:key>/edit/", _view(letter.edit), name="letter_edit"),
    path("replays/", _view(letters.replay_list), name="replays"),
    path("schedule/", _view(schedule.show), name="schedule"),
    path("audit/", _view(audit.show), name="audit"),
    path("handbook/", _view(handbook.show), name="handbook"),
    path("handbook/<path:name>/", _view(handbook.show), name="handbook_page"),
    path("task/<str:task_id>/", _view(task.show), name="task"),
]
