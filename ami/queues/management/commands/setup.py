"""``manage.py setup``: bring the database, the broker and the schedule to this version."""

from typing import Any

from django.core.management import call_command
from django.core.management.base import BaseCommand

from ami.queues import startup


class Command(BaseCommand):
    """Runs the steps that a new version needs before it starts; idempotent."""

    # Each step runs the checks that it needs.
    requires_system_checks = []
    help = "Run migrate, queues declare and queues schedule; stop at the first that fails."

    def handle(self, *args: Any, **options: Any) -> None:
        """Run all steps in this process: starting Django takes longer than most of them."""
        call_command("migrate", interactive=False, skip_checks=False)
        call_command("queues", "declare")
        call_command("queues", "schedule")
        startup.begin()
