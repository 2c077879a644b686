"""The database for a background thread of a process that forks: each use opens, writes and closes under one lock.

A child that is forked while another thread of its parent is inside an SQLite transaction finds the database locked for
ever. So a fork waits for the lock, but never longer than `FORK_WAIT_SECONDS`: what holds it has short timeouts of its
own, and a PostgreSQL connection that is open during a fork does no harm as long as the child never closes it.
"""

import copy
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.db import DEFAULT_DB_ALIAS, connections

from ami.celery import answer_limits

#: For opening a connection, for a statement, and for a lock of another process.
TIMEOUT_SECONDS = 1
#: A server that is frozen cancels no statement: then this process gives it up.
ANSWER_SECONDS = 3.0
#: A fork waits so long for a statement of a background thread, then goes on without the lock.
FORK_WAIT_SECONDS = 2.0

_lock = threading.Lock()
_fork_has_lock = False
_thread = threading.local()


@contextmanager
def short_connection(*, keep: bool = False) -> Iterator[Any]:
    """Give the calling thread a database connection of its own until the block ends; the ORM uses it, too.

    The block should be a few statements: a fork of this process waits for it. With ``keep`` the thread's next block
    may use the same connection, where a fork does it no harm: on PostgreSQL, whose client knows in which process it was
    opened. A thread that keeps one ends with a block that does not.

    Raises:
        django.db.Error: the database did not answer in time.
    """
    with _lock:
        before = next((each for each in connections.all(initialized_only=True) if each.alias == DEFAULT_DB_ALIAS), None)
        link, _thread.kept = getattr(_thread, "kept", None) or _link(), None
        connections[DEFAULT_DB_ALIAS] = link
        try:
            yield link
            if keep and link.vendor == "postgresql":
                _thread.kept = link
        finally:
            if _thread.kept is None:
                link.close()
            if before is None:
                del connections[DEFAULT_DB_ALIAS]
            else:
                connections[DEFAULT_DB_ALIAS] = before


@contextmanager
def beside_forks() -> Iterator[None]:
    """Let `database_block` give the calling thread short connections: its process may fork at any time."""
    _thread.is_beside_forks = True
    try:
        yield
    finally:
        _thread.is_beside_forks = False


@contextmanager
def database_block() -> Iterator[None]:
    """Hold the database for a few statements: on a short connection within `beside_forks`, else on the thread's own.

    What is read there belongs inside, to its last row; what waits for something else does not. Blocks may be nested.
    """
    if not getattr(_thread, "is_beside_forks", False) or getattr(_thread, "is_in_block", False):
        yield
        return
    _thread.is_in_block = True
    try:
        with short_connection():
            yield
    finally:
        _thread.is_in_block = False


def _link() -> Any:
    link: Any = connections.create_connection(DEFAULT_DB_ALIAS)
    link.settings_dict = copy.deepcopy(link.settings_dict)
    link.settings_dict["CONN_MAX_AGE"] = 0
    link.settings_dict["CONN_HEALTH_CHECKS"] = False
    options = link.settings_dict["OPTIONS"]
    if link.vendor == "sqlite":
        options["timeout"] = TIMEOUT_SECONDS
    else:
        options["connect_timeout"] = TIMEOUT_SECONDS
        answer_limits.limit_of(link, ANSWER_SECONDS)
        # With the time zone here, Django has no statement of its own to send.
        limit = (
            f"-c TimeZone=UTC -c statement_timeout={TIMEOUT_SECONDS * 1000} -c lock_timeout={TIMEOUT_SECONDS * 1000}"
        )
        options["options"] = f"{options.get('options', '')} {limit}".strip()
    return link


def _before_fork() -> None:
    global _fork_has_lock
    _fork_has_lock = _lock.acquire(timeout=FORK_WAIT_SECONDS)


def _after_fork_in_parent() -> None:
    global _fork_has_lock
    if _fork_has_lock:
        _fork_has_lock = False
        _lock.release()


def _after_fork_in_child() -> None:
    global _lock, _fork_has_lock
    _lock, _fork_has_lock = threading.Lock(), False


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)
