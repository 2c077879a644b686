"""Reports errors to Sentry where SENTRY_DSN is set. Without it nothing imports this module, nor the library.

What leaves the deployment has no arguments but masked ones, no local variables, no bodies, no cookies and no users, and
every text goes through the redaction that pages and logs have.
"""

from collections.abc import Sequence
from typing import Any

import sentry_sdk
from celery import current_task
from sentry_sdk.integrations.celery import CeleryIntegration
from sentry_sdk.integrations.django import DjangoIntegration
from sentry_sdk.utils import BadDsn, Dsn

from ami.celery import sensitive
from ami.environment.declaration import of
from ami.queues.redaction import MASK, MOST_DEPTH, redact
from config.schema.monitoring import Monitoring
from config.settings.environment import refuse

MOST_BREADCRUMBS = 30
#: A process that ends waits so long for what it still has to report.
SHUTDOWN_SECONDS = 2
#: What a report does not need of a request; the integration leaves it out by itself as well.
UNSENT = ("cookies", "data", "env")
#: The key under which the integration gives what it knows of the task.
JOB = "celery-job"


def start(dsn: str, environment: str, version: str) -> None:
    """Report the errors of this process and of those that it forks, under ``version`` as the release.

    Stops the process where the DSN is none.
    """
    try:
        Dsn(dsn)
    except BadDsn:
        variable = of(Monitoring, "sentry_dsn")
        refuse(f"{variable.name} lacks its key or its project; write it like {variable.example}.")
    sentry_sdk.init(
        dsn=dsn,
        environment=environment,
        release=version,
        integrations=[
            DjangoIntegration(middleware_spans=False, signals_spans=False),
            # Headers of messages stay as they are: what reads them knows no others.
            CeleryIntegration(propagate_traces=False),
        ],
        auto_enabling_integrations=False,
        send_default_pii=False,
        include_local_variables=False,
        max_request_body_size="never",
        max_breadcrumbs=MOST_BREADCRUMBS,
        shutdown_timeout=SHUTDOWN_SECONDS,
        before_send=masked,
    )


def masked(event: Any, _: Any = None) -> Any:
    """Return the event without secrets: those that the running task declares, and those that a name or a form shows."""
    for name in UNSENT:
        event.get("request", {}).pop(name, None)
    secrets: Sequence[str] = ()
    if current_task and not current_task.request.called_directly:
        request = current_task.request
        secrets = sensitive.values(current_task, request.args, request.kwargs)
        if JOB in event.get("extra", {}):
            event["extra"][JOB] |= _arguments(request)
    return redact(_without(event, secrets))


def _arguments(request: Any) -> dict[str, Any]:
    shown = sensitive.masked(current_task.app, current_task.name, request.args, request.kwargs)
    args, kwargs = shown or (request.args, request.kwargs)
    return {"args": list(args or ()), "kwargs": dict(kwargs or {})}


def _without(value: Any, secrets: Sequence[str], depth: int = 0) -> Any:
    """Return a value with the secrets masked in its texts; what is nested too deeply is masked whole."""
    if isinstance(value, str):
        return sensitive.without(value, secrets)
    if not isinstance(value, (dict, list, tuple)):
        return value
    if depth >= MOST_DEPTH:
        return MASK
    if isinstance(value, dict):
        return {key: _without(each, secrets, depth + 1) for key, each in value.items()}
    return [_without(each, secrets, depth + 1) for each in value]
