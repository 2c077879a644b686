"""What a worker shares with its children is exempt from garbage collection."""

import gc
from collections.abc import Iterator

import pytest
from celery.signals import worker_before_create_process

from ami.governor import shared_memory


@pytest.fixture
def unfrozen() -> Iterator[None]:
    gc.unfreeze()
    yield
    gc.unfreeze()


def test_objects_of_before_the_first_fork_are_exempt_and_later_ones_are_not(unfrozen: None) -> None:
    shared_memory.keep_shared()
    assert gc.get_freeze_count() == 0
    worker_before_create_process.send(sender=None)
    exempt = gc.get_freeze_count()
    assert exempt > 0
    later = [[] for _ in range(100)]
    worker_before_create_process.send(sender=None)
    assert gc.get_freeze_count() <= exempt
    assert len(later) == 100
