"""The addresses of the console's lists, each behind the staff's sign-in."""

from django.urls import path

from ami.console import audit, handbook, letter, letters, schedule_page, task
from ami.console import call_levers as call_levers  # Its levers are on the page of calls.
from ami.console.page import staff
from ami.console.pages.calls import CallsPage
from ami.console.pages.workers import WorkerPage, WorkersPage

urlpatterns = [
    path("workers/", staff(WorkersPage.as_view()), name="workers"),
    path("workers/<path:name>/", staff(WorkerPage.as_view()), name="worker"),
    path("calls/", staff(CallsPage.as_view()), name="calls"),
    path("letters/", staff(letters.groups), name="letters"),
    path("letters/all/", staff(letters.all_letters), name="letter_list"),
    path("letters/cause/<str:cause>/", staff(letters.one_group), name="letter_group"),
    path("letters/<int:key>/", staff(letter.show), name="letter"),
    path("letters/<int:key>/edit/", staff(letter.edit), name="letter_edit"),
    path("replays/", staff(letters.replay_list), name="replays"),
    path("schedule/", staff(schedule_page.show), name="schedule"),
    path("audit/", staff(audit.show), name="audit"),
    path("handbook/", staff(handbook.show), name="handbook"),
    path("handbook/<path:name>/", staff(handbook.show), name="handbook_page"),
    path("task/<path:task_id>/", staff(task.show), name="task"),
]
