"""A prefork pool without processes, in which only a test makes something happen."""

import os
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from billiard.pool import DEATH, READY
from celery.concurrency.asynpool import WORKER_UP

from ami.governor import pool_children as module
from ami.governor.pool_children import Children

MIB = 1024
OK = (True, (False, None))


class Child:
    """A process of the pool, reached through the descriptor ``inqW_fd``."""

    def __init__(self, pid: int) -> None:
        self.pid, self.inqW_fd = pid, pid + 1000
        self.dismissed = 0

    def terminate_controlled(self) -> None:
        self.dismissed += 1


class Pool:
    """The part of Celery's AsynPool that the governor uses, without processes."""

    def __init__(self, events: list[Any], max_tasks: int = 0) -> None:
        self._pool: list[Child] = []
        self._cache: dict[int, Any] = {}
        self._busy_workers: set[int] = set()
        self._all_inqueues: set[int] = set()
        self._fileno_to_inq: dict[int, Child] = {}
        self._maxtasksperchild = max_tasks
        self.maintained = 0

        #: What each task's message is settled by.
        self.results: list[Any] = []

        def ready(job: int, _: Any, result: Any, *__: Any) -> None:
            events.append("settled")
            self.results.append(result)
            del self._cache[job]
            self._busy_workers.discard(self.fd_of[job])

        self.fd_of: dict[int, int] = {}
        self._result_handler = SimpleNamespace(
            state_handlers={
                READY: ready,
                WORKER_UP: lambda pid: events.append(("up", pid)),
                DEATH: lambda pid, code: events.append(("death", pid, code)),
            }
        )

    def maintain_pool(self) -> None:
        self.maintained += 1


class World:
    """A pool with its children, and every event and delayed call."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, max_tasks: int = 0) -> None:
        self.now, self.events, self.later = 100.0, [], []
        self.pool = Pool(self.events, max_tasks)
        self.pss: dict[int, int] = {}
        self.rss: dict[int, int] = {}
        self.closed: list[int] = []
        self.killed: list[tuple[int, int]] = []
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: self.now))
        monkeypatch.setattr(module.process, "pss_kib", lambda pid: self.pss[pid])
        monkeypatch.setattr(module.process, "rss_kib", lambda pid: self.rss.get(pid, self.pss[pid]))
        monkeypatch.setattr(module.process, "Resident", self._resident)
        monkeypatch.setattr(os, "kill", lambda pid, sent: self.killed.append((pid, sent)))
        self.children = Children(self.pool, lambda: self.events.append(("ready", self.children.ready)), self._put_off)

    def _resident(self, pid: int) -> Any:
        """The open file of a child's resident size."""
        return SimpleNamespace(kib=lambda: self.rss.get(pid, self.pss[pid]), close=lambda: self.closed.append(pid))

    def _put_off(self, seconds: float, function: Callable[..., Any], *args: Any) -> None:
        self.later.append((self.now + seconds, lambda: function(*args)))

    def starts(self, pid: int, kib: int = 50 * MIB, fd: int | None = None) -> Child:
        child = Child(pid)
        child.inqW_fd = fd or child.inqW_fd
        self.pss[pid] = kib
        self.pool._pool.append(child)
        self.pool._all_inqueues.add(child.inqW_fd)
        self.pool._fileno_to_inq[child.inqW_fd] = child
        self.say(WORKER_UP, pid)
        self.events.clear()
        return child

    def dies(self, child: Child) -> None:
        self.pool._pool.remove(child)
        self.pool._all_inqueues.discard(child.inqW_fd)
        self.pool._busy_workers.discard(child.inqW_fd)
        del self.pool._fileno_to_inq[child.inqW_fd]

    def begins(self, child: Child) -> Any:
        job = SimpleNamespace(_worker_pid=child.pid, _job=child.pid, outcome=None)
        job.ready = lambda: job.outcome is not None
        job._set = lambda _, outcome: setattr(job, "outcome", outcome)
        self.pool._cache[child.pid] = job
        self.pool.fd_of[child.pid] = child.inqW_fd
        self.pool._busy_workers.add(child.inqW_fd)
        return job

    def ends(self, child: Child, result: Any = OK) -> None:
        """Report the end of the child's task."""
        self.say(READY, child.pid, None, result, child.inqW_fd)

    def say(self, what: int, *args: Any) -> None:
        self.pool._result_handler.state_handlers[what](*args)

    def runs(self, child: Child, result: Any = OK) -> None:
        self.begins(child)
        self.ends(child, result)

    def passes(self, seconds: float) -> None:
        """Let time pass, and run the delayed calls that are due."""
        self.now += seconds
        due = [function for at, function in self.later if at <= self.now]
        self.later = [(at, function) for at, function in self.later if at > self.now]
        for function in due:
            function()

    def free(self, child: Child) -> bool:
        """Whether the pool would write a task to it."""
        return child.inqW_fd not in self.pool._busy_workers
