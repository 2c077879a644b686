"""Runs several pullers as threads of one process; registers once, stops all together."""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from types import FrameType

from ami.ml.schemas import AsyncPipelineRegistrationRequest
from processing_service import catalogue
from processing_service.antenna import Antenna, AntennaError
from processing_service.backoff import Backoff
from processing_service.downloads import Downloader, DownloadLimits
from processing_service.images import ImageProcessor
from processing_service.logs import event
from processing_service.pictures import MAX_PIXELS
from processing_service.puller import Puller, PullSettings, WorkerName

log = logging.getLogger(__name__)

#: Antenna may start at the same time.
STARTING = Backoff(longest_seconds=3.0)


@dataclass(frozen=True)
class Credentials:
    """A token, or an e-mail address with its password; `repr` omits secrets."""

    token: str | None = field(default=None, repr=False)
    email: str | None = None
    password: str | None = field(default=None, repr=False)

    @classmethod
    def from_environment(cls, token_env: str | None, email: str | None, password_env: str | None) -> Credentials:
        """Read the secrets from the named variables; `ValueError`, with the remedy, if one is missing."""
        if email is not None:
            if not password_env or not os.environ.get(password_env):
                raise ValueError(f"--email needs the password in the variable {password_env or '(--password-env)'}")
            return cls(email=email, password=os.environ[password_env])
        name = token_env or "ANTENNA_TOKEN"
        token = os.environ.get(name)
        if not token:
            raise ValueError(f"the variable {name} has no token: set it, or give --email and --password-env")
        return cls(token=token)


@dataclass(frozen=True)
class FleetSettings:
    """The settings of `run_fleet`; `pullers` is the number of threads."""

    antenna: str
    credentials: Credentials
    project: int
    name: str
    pull: PullSettings
    pullers: int = 2
    limits: DownloadLimits = field(default_factory=DownloadLimits)
    max_pixels: int = MAX_PIXELS


def run_fleet(settings: FleetSettings, stop: threading.Event) -> int:
    """Register and pull until `stop` is set or the settings end it; return the number of posted tasks.

    While Antenna is unreachable it tries again. `AntennaError` if the login or the registration is refused, or the
    token later.
    """
    antenna = Antenna(settings.antenna, stop, settings.credentials.token, STARTING)
    try:
        token = _registered(antenna, settings, stop)
    finally:
        antenna.close()
    if token is None:
        return 0
    with Downloader(settings.limits, stop) as downloader, ThreadPoolExecutor(settings.pullers) as threads:
        processor = ImageProcessor(downloader, settings.max_pixels)
        name = WorkerName()
        running = [threads.submit(_pull, settings, token, processor, stop, name) for _ in range(settings.pullers)]
        return sum(one.result() for one in running)


def _registered(antenna: Antenna, settings: FleetSettings, stop: threading.Event) -> str | None:
    """Register as soon as Antenna answers and return the token; None if `stop` is set before."""
    while not stop.is_set():
        try:
            return _register(antenna, settings)
        except AntennaError as error:
            if stop.is_set():
                break
            is_finite = settings.pull.once or settings.pull.until_idle_seconds is not None
            if is_finite or not error.is_passing:
                raise
            log.warning(event("antenna unreachable, trying again", error=error))
    return None


def _register(antenna: Antenna, settings: FleetSettings) -> str:
    """Log in if there is no token, register the pipelines, and return the token."""
    known = settings.credentials
    token = known.token or antenna.log_in(known.email or "", known.password or "")
    pipelines = catalogue.chosen_pipelines(settings.pull.slugs)
    request = AsyncPipelineRegistrationRequest(processing_service_name=settings.name, pipelines=pipelines)
    antenna.register(settings.project, request)
    log.info(event("registered", name=settings.name, project=settings.project, pipelines=len(pipelines)))
    return token


def _pull(
    settings: FleetSettings, token: str, processor: ImageProcessor, stop: threading.Event, name: WorkerName
) -> int:
    antenna = Antenna(settings.antenna, stop, token)
    try:
        return Puller(antenna, processor, settings.pull, stop, name).run()
    except AntennaError:
        stop.set()
        raise
    finally:
        antenna.close()


def stop_at_signals(stop: threading.Event) -> Callable[[], None]:
    """Set `stop` at SIGTERM and SIGINT; return a function that restores the former handlers."""

    def on_signal(number: int, _: FrameType | None) -> None:
        stop.set()
        log.info(event("stopping", signal=signal.Signals(number).name))

    former = {number: signal.signal(number, on_signal) for number in (signal.SIGTERM, signal.SIGINT)}

    def restore() -> None:
        for number, handler in former.items():
            signal.signal(number, handler)

    return restore
