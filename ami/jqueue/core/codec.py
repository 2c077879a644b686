"""The wire format: a whole queue as one JSON document, and the only place that knows it."""

from pydantic import ValidationError

from ami.jqueue.domain.errors import StorageError
from ami.jqueue.domain.models import QueueState


def encode(state: QueueState) -> bytes:
    """Return the state as indented JSON in UTF-8: payloads in base64, moments in ISO 8601."""
    return state.model_dump_json(indent=2).encode()


def decode(data: bytes) -> QueueState:
    """Return the state that `encode` wrote; no bytes are a new queue. Raises StorageError for anything else."""
    if not data:
        return QueueState()
    try:
        return QueueState.model_validate_json(data)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"])) or "the document"
        # The error itself would quote payloads.
        raise StorageError(f"this is not a queue in JSON: {where}: {first['msg']}", ValueError(first["msg"])) from None
