"""The Django app of the adoption."""

from typing import IO, Any

from django.apps import AppConfig


class AdoptConfig(AppConfig):
    """Adds the sub-command to ``manage.py queues``."""

    name = "ami.adopt"
    label = "adopt"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from ami.queues.management import added

        text = "move a running application's messages into the split"
        added.connect("adopt", added.SubCommand(text, _add_arguments, _run))


def _add_arguments(parser: Any) -> None:
    def complete() -> None:
        from ami.adopt import command

        command.add_options(parser)

    parser.complete = complete


def _run(options: dict[str, Any], out: IO[str]) -> None:
    from ami.adopt import command

    command.run(options, out)
