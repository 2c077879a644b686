"""Findings of the apps above the queues, such as about NATS; `config` connects what looks for them."""

from collections.abc import Callable, Iterable, Iterator

from celery.utils.log import get_logger

from ami.queues.diagnostics.finding import Finding

logger = get_logger(__name__)

_sources: dict[str, Callable[[], Iterable[Finding]]] = {}


def connect(name: str, source: Callable[[], Iterable[Finding]]) -> None:
    """Ask ``source`` at each look; connected again under the same name, the last one."""
    _sources[name] = source


def findings() -> Iterator[Finding]:
    for name, source in _sources.items():
        try:
            yield from source()
        except Exception as error:  # One source that fails hides no other.
            logger.exception("Source of findings failed: %s", name)
            yield Finding("unseen", "source", f"{name} was not looked at: {type(error).__name__}; see the log.", name)
