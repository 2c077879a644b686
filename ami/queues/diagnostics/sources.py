"""Findings of the apps above the queues, such as about NATS; `config` connects what looks for them."""

from collections.abc import Callable, Iterable, Iterator
from functools import partial

from celery.utils.log import get_logger
from django.db import Error

from ami.queues import broker_errors
from ami.queues.connection_reasons import reason
from ami.queues.diagnostics.finding import Finding
from ami.queues.diagnostics.look import Look

logger = get_logger(__name__)

Source = Callable[[], Iterable[Finding]]

_sources: dict[str, tuple[Source, tuple[str, ...]]] = {}


def connect(name: str, source: Source, *needs: str) -> None:
    """Ask ``source`` at each look, unless what it needs is away (``DATABASE``, ``BROKER`` of `finding`); connected
    again under the same name, the last one.
    """
    _sources[name] = source, needs


def findings(away: dict[str, Finding] | None = None) -> list[Finding]:
    """Return what all sources find; where one that another needs goes away, that is added to ``away``, if it is given,
    and else to the findings.
    """
    look = Look(away)
    for name, (source, needs) in _sources.items():
        look.add(partial(_asked, name, source), *needs)
    return look.findings() if away is None else look.found


def _asked(name: str, source: Source) -> Iterator[Finding]:
    """Yield what a source finds; one that fails hides no other.

    Raises:
        django.db.Error: the database did not answer; or what the broker's libraries raise.
    """
    try:
        yield from source()
    except Error:
        raise
    except OSError as error:
        yield Finding("error", "source", f"{name} did not answer: {reason(error)}.", name)
    except broker_errors.kinds():
        raise
    except Exception as error:
        logger.exception("Source of findings failed: %s", name)
        yield Finding("error", "source", f"{name} was not looked at: {type(error).__name__}; see the log.", name)
