"""``python -m config.preflight VERB ...``: parses the command line of ``celery -A config VERB ...`` and starts nothing.

Exit code 0 if Celery and the settings accept it; else their sentence and exit code.
"""

import sys
from collections.abc import Sequence
from typing import Any

import click
from celery.bin.celery import celery
from django.conf import settings

from ami.celery import worker


def main(argv: Sequence[str]) -> None:
    """Let Celery's own command line parse the arguments, with a command in place of the one that would start."""
    for verb in ("worker", "beat"):
        celery.commands[verb].callback = click.pass_context(_accept)
    celery(["-A", "config", *argv], prog_name="celery", auto_envvar_prefix="CELERY")


def _accept(context: click.Context, **options: Any) -> None:
    settings.INSTALLED_APPS  # noqa: B018 - reads the settings, which refuse wrong values.
    app = context.obj.app
    try:
        # Celery's own commands read further settings, like worker.pool=solo, in the same way.
        app.config_from_cmdline(context.args, namespace="worker" if context.info_name == "worker" else "")
    except (KeyError, ValueError):
        raise click.UsageError(
            f"Unexpected argument {' '.join(context.args)}; options begin with --, and Celery's settings look like "
            "worker.prefetch_multiplier=2.",
            ctx=context,
        ) from None
    if context.info_name == "worker":
        limits = worker.limits_of(app, options)
        if limits and limits.sizing:
            print(limits.sizing, file=sys.stderr)


if __name__ == "__main__":
    main(sys.argv[1:])
