"""A state as bytes, so that another process need not read the journal from its beginning."""

import json
from typing import Any

from ami.transports.objectstore.queue.entry import Entry
from ami.transports.objectstore.queue.format import FORMAT
from ami.transports.objectstore.queue.garbage import collections_paused
from ami.transports.objectstore.queue.limits import LengthLimit
from ami.transports.objectstore.queue.state import State
from ami.transports.objectstore.storage.errors import StorageError


def dump(state: State) -> bytes:
    """Return a state as bytes that `load` reads."""
    whole = {
        "format": FORMAT,
        "version": state.version,
        "now": state.now,
        "order": state.order,
        "delivery_limit": state.delivery_limit,
        "keeps_buried": state.keeps_buried,
        "limit": list(state.limit),
        "acknowledged": list(state.acknowledged.items()),
        "entries": [entry.dump() for entry in state.entries.values()],
    }
    return json.dumps(whole, separators=(",", ":")).encode()


def load(content: bytes) -> State:
    """Return the state of a snapshot. Raises StorageError for one that this version cannot read."""
    try:
        with collections_paused():
            whole = json.loads(content)
            if whole["format"] != FORMAT:
                raise StorageError(f"the snapshot has format {whole['format']}; this version reads {FORMAT}")
            return _state(whole)
    except (ValueError, TypeError, KeyError) as error:
        raise StorageError(f"the snapshot cannot be read: {error!r}", error) from error


def _state(whole: dict[str, Any]) -> State:
    state = State()
    state.version, state.now, state.order = whole["version"], whole["now"], whole["order"]
    state.delivery_limit, state.keeps_buried = whole["delivery_limit"], whole["keeps_buried"]
    # A version without limits wrote none.
    state.limit = LengthLimit(*whole.get("limit", ()))
    state.acknowledged.update(whole["acknowledged"])
    for entry in map(Entry.load, whole["entries"]):
        state.place(entry)
    return state
