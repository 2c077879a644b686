"""The command line: `python -m processing_service serve` (push mode) and `... pull` (pull mode)."""

from __future__ import annotations

import argparse
import logging
import sys
import threading
from collections.abc import Sequence
from urllib.parse import urlsplit

import uvicorn

from processing_service import catalogue
from processing_service.antenna import AntennaError
from processing_service.api import PushSettings, create_app
from processing_service.downloads import DownloadLimits
from processing_service.fleet import Credentials, FleetSettings, run_fleet, stop_at_signals
from processing_service.logs import configure, event
from processing_service.pictures import MAX_PIXELS
from processing_service.puller import PullSettings

log = logging.getLogger("processing_service")

_LEVELS = ("debug", "info", "warning", "error")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return 0 on success, 1 if Antenna refused, 2 for invalid options."""
    parser = _parser()
    options = parser.parse_args(arguments)
    configure(options.log_level)
    try:
        return _serve(options) if options.command == "serve" else _pull(options)
    except (KeyError, ValueError) as error:
        parser.error(str(error.args[0]) if error.args else str(error))
    except AntennaError as error:
        log.error(event("ended", error=error))
        return 1


def _serve(options: argparse.Namespace) -> int:
    settings = PushSettings(
        slugs=options.pipeline,
        limits=_limits(options),
        max_pixels=options.max_pixels,
        concurrency=options.concurrency,
    )
    app = create_app(settings)
    log.info(event("serving", host=options.host, port=options.port))
    uvicorn.run(app, host=options.host, port=options.port, log_config=None, access_log=False)
    return 0


def _pull(options: argparse.Namespace) -> int:
    slugs = [pipeline.slug for pipeline in catalogue.chosen_pipelines(options.pipeline)]
    settings = FleetSettings(
        antenna=options.antenna,
        credentials=Credentials.from_environment(options.token_env, options.email, options.password_env),
        project=options.project,
        name=options.name,
        pull=PullSettings(slugs, options.batch_size, options.poll_seconds, options.once, options.until_idle),
        pullers=options.pullers,
        limits=_limits(options),
        max_pixels=options.max_pixels,
    )
    stop = threading.Event()
    restore = stop_at_signals(stop)
    try:
        posted = run_fleet(settings, stop)
    finally:
        restore()
    log.info(event("ended", tasks=posted))
    return 0


def _limits(options: argparse.Namespace) -> DownloadLimits:
    return DownloadLimits(max_bytes=options.max_bytes)


def _parser() -> argparse.ArgumentParser:
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument("--pipeline", action="append", default=[], metavar="SLUG", help="run only this; repeatable")
    shared.add_argument("--max-bytes", type=_positive, default=DownloadLimits().max_bytes, help="limit per picture")
    shared.add_argument("--max-pixels", type=_positive, default=MAX_PIXELS, help="limit per picture")
    shared.add_argument("--log-level", choices=_LEVELS, default="info")
    parser = argparse.ArgumentParser(prog="python -m processing_service", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    serve = commands.add_parser("serve", parents=[shared], help="push mode: Antenna calls this service")
    serve.add_argument("--host", default="127.0.0.1")
    serve.add_argument("--port", type=_port, default=2000)
    serve.add_argument("--concurrency", type=_positive, default=2, help="maximum concurrent requests")
    _add_pull(commands.add_parser("pull", parents=[shared], help="pull mode: this service calls Antenna"))
    return parser


def _add_pull(pull: argparse.ArgumentParser) -> None:
    pull.add_argument(
        "--antenna", type=_address, required=True, metavar="URL", help="URL of the site or of its /api/v2/"
    )
    pull.add_argument("--token-env", metavar="NAME", help="variable with the token (ANTENNA_TOKEN)")
    pull.add_argument("--email", help="log in with this e-mail address instead of a token")
    pull.add_argument("--password-env", metavar="NAME", help="variable with the password of --email")
    pull.add_argument("--project", type=_positive, required=True, metavar="ID")
    pull.add_argument("--name", required=True, help="name of this processing service in Antenna")
    pull.add_argument("--batch-size", type=_batch_size, default=8, help="tasks per request, 1 to 1000")
    pull.add_argument("--pullers", type=_positive, default=2, help="number of concurrent pullers")
    pull.add_argument("--poll-seconds", type=_seconds, default=2.0, help="wait when there are no tasks")
    ending = pull.add_mutually_exclusive_group()
    ending.add_argument("--once", action="store_true", help="stop after one poll")
    ending.add_argument("--until-idle", type=_seconds, metavar="SECONDS", help="stop after SECONDS without a task")


def _positive(text: str) -> int:
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"'{text}' is not a whole number of 1 or more")
    return value


def _batch_size(text: str) -> int:
    value = _positive(text)
    if value > 1000:
        raise argparse.ArgumentTypeError(f"{value} is more than 1000")
    return value


def _port(text: str) -> int:
    value = int(text) if text.isdecimal() else -1
    if not 0 <= value <= 65_535:
        raise argparse.ArgumentTypeError(f"'{text}' is not a port from 0 to 65535")
    return value


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"'{text}' is not a number of seconds, 0 or more")
    return value


def _address(text: str) -> str:
    """Return a URL of http or https; the message repeats no part of another one, which may hold a password."""
    try:
        parts = urlsplit(text)
        known = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        known = False
    if not known:
        raise argparse.ArgumentTypeError("it is not a URL; write it like https://antenna.example.org")
    return text


if __name__ == "__main__":
    sys.exit(main())
