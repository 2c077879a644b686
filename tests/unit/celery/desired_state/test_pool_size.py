"""How large a worker's pool is kept."""

from types import SimpleNamespace
from typing import Any

import pytest

from ami.celery.desired_state.pool_size import PoolSize


class Pool:
    """A pool that grows and shrinks, but keeps as many as are busy."""

    def __init__(self, size: int, busy: int = 0) -> None:
        self.num_processes, self._busy = size, busy

    def grow(self, n: int) -> None:
        self.num_processes += n

    def shrink(self, n: int) -> None:
        if self.num_processes <= self._busy:
            raise ValueError("Can't shrink pool. All processes busy!")
        self.num_processes -= n


def size_of(pool: Any, held: int | None = None, autoscaler: Any = None) -> PoolSize:
    controller = SimpleNamespace(pool=pool, concurrency=pool.num_processes, autoscaler=autoscaler, min_concurrency=1)
    return PoolSize(controller, held)


@pytest.mark.parametrize(("wish", "held", "size"), [(None, None, 4), (None, 2, 4), (6, None, 6), (6, 5, 5), (1, 5, 1)])
def test_wish_is_bounded_by_the_container_and_the_start_is_not(wish: int | None, held: int | None, size: int):
    pool = Pool(4)
    made = size_of(pool, held)
    assert made.adjust(wish, None) == (size != 4)
    assert pool.num_processes == size


def test_busy_processes_are_removed_later():
    pool = Pool(4, busy=3)
    made = size_of(pool)
    for _ in range(2):
        made.adjust(1, None)
        assert pool.num_processes == 3
    pool._busy = 0
    made.adjust(1, None)
    assert pool.num_processes == 1


def test_autoscaler_decides_without_a_wish():
    updates: list[tuple[int, int]] = []
    autoscaler = SimpleNamespace(update=lambda **sizes: updates.append((sizes["max"], sizes["min"])))
    pool = Pool(4)
    made = size_of(pool, autoscaler=autoscaler)
    pool.num_processes = 2
    assert not made.adjust(None, None)
    assert made.adjust(3, None)
    assert updates == [(3, 1)]


def test_pool_that_cannot_grow_is_left_alone():
    assert not size_of(SimpleNamespace(num_processes=1)).adjust(4, None)
