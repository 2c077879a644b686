"""Keeps Flower, which can stop workers and send tasks, behind a login, and gives it RabbitMQ's management API."""

import os
from collections.abc import Sequence
from typing import Any

import click
from celery import signals
from django.conf import settings

from ami.environment.errors import did_you_mean
from ami.environment.secret_files import PLACEHOLDER
from config import flower_queues
from config.settings.environment import refuse

OFF = ("", "0", "false", "no", "off")


@signals.import_modules.connect(dispatch_uid="antenna_flower")
def configure(**_: Any) -> None:
    """Refuse to start an open Flower, and show RabbitMQ's queues on its Broker page.

    Flower has no hook of its own. It imports the tasks after it has read its environment, its command line and
    its configuration file, and before it listens: the login is known here, whatever its source.
    """
    command = click.get_current_context(silent=True)
    if command is None or command.info_name != "flower":
        return
    _refuse_unknown(command.params["tornado_argv"])
    if settings.FLOWER_LOGIN_REQUIRED:
        _require_login()
    flower_queues.show()
    if settings.RABBITMQ_MANAGEMENT_URL:
        _use_management_api(settings.RABBITMQ_MANAGEMENT_URL)


def _require_login() -> None:
    from flower.options import options

    if os.environ.get("FLOWER_UNAUTHENTICATED_API", "").lower() not in OFF:
        refuse("FLOWER_UNAUTHENTICATED_API opens Flower's API to anyone; remove it and send a login instead.")
    if not options.auth and not options.basic_auth:
        refuse(
            "FLOWER_BASIC_AUTH is not set and Flower can stop workers; set it to USER:PASSWORD, or FLOWER_AUTH, "
            "FLOWER_AUTH_PROVIDER and FLOWER_OAUTH2_* for single sign-on."
        )
    for login in options.basic_auth or ():
        _refuse_weak(login)
    _close_metrics()


def _refuse_unknown(arguments: Sequence[str]) -> None:
    """Refuse what Flower drops without a word: an option that it does not have, a value that ``=`` does not join."""
    from flower.command import is_flower_option
    from flower.options import default_options

    for argument in arguments:
        if not is_flower_option(argument):
            name = argument.partition("=")[0].lstrip("-")
            near = did_you_mean(name.replace("-", "_"), default_options)
            refuse(f"Flower has no option '{name}'; write its options like --port=5555.{near}")


def _refuse_weak(login: str) -> None:
    user, _, password = login.partition(":")
    if not user or not password:
        refuse("FLOWER_BASIC_AUTH is not USER:PASSWORD (several: separated by commas); write it so.")
    if PLACEHOLDER in login:
        refuse(f"FLOWER_BASIC_AUTH still holds the placeholder '{PLACEHOLDER}' of .env.example; choose a password.")


def _use_management_api(url: str) -> None:
    """Let the Broker page read the queues from ``url``, unless Flower has a ``broker_api`` of its own.

    Without it Flower looks on port 15672 of the broker's host. The login is not part of the option: Tornado does not
    decode a password inside a URL, and no page, log or error can show what the URL does not contain.
    """
    from flower.options import options
    from flower.utils import broker

    from ami.queues.management_api import ManagementApi, ManagementUnavailable

    if options.broker_api:
        return
    try:
        api = ManagementApi(url, "")
    except ManagementUnavailable as error:
        refuse(f"{error}.")
    user, password = api.login

    class Managed(broker.RabbitMQ):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            if user:
                self.username, self.password = user, password
            if self.vhost == "/":  # Not quoted by Flower, which would show the queues of every virtual host.
                self.vhost = "%2F"

    options.broker_api = f"{api.address}/"
    broker.RabbitMQ = Managed


def _close_metrics() -> None:
    """Require the login on ``/metrics``, which Flower 2.2 leaves open; ``/healthcheck`` stays open."""
    from flower.views.monitor import Metrics
    from tornado.web import authenticated

    Metrics.get = authenticated(Metrics.get)
