"""The Django app of the console."""

from django.apps import AppConfig


class ConsoleConfig(AppConfig):
    """Holds the page's templates and static files; it has no models."""

    name = "ami.console"
    label = "console"
