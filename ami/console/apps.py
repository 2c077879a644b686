"""The Django app of the console."""

from typing import Any

from django.apps import AppConfig
from django.contrib.auth.signals import user_logged_out


class ConsoleConfig(AppConfig):
    """Holds the page's templates and static files; it has no models."""

    name = "ami.console"
    label = "console"

    def ready(self) -> None:
        """Listen to sign-outs."""
        user_logged_out.connect(_signed_out, dispatch_uid="console")


def _signed_out(request: Any, **_: Any) -> None:
    from ami.console.watchers import watchers

    watchers.distrust(str(request.session.session_key or ""))
