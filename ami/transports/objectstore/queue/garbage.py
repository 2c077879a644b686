"""Pauses the garbage collector while many objects are loaded."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collections_paused() -> Iterator[None]:
    """Pause the garbage collector: it would look at all that is loaded again and again, and find no garbage."""
    if not gc.isenabled():
        yield  # Another thread enables it again, or it stays off.
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
