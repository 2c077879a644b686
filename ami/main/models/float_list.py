"""A list of floats as bytes: little-endian float64, 8 bytes a number, on every database."""

import json
import sys
from array import array
from typing import Any

from django.db import models


def pack(numbers: Any) -> bytes:
    """Return the bytes of a sequence of numbers. Raises TypeError for anything that is not a number."""
    packed = array("d", numbers)
    if sys.byteorder == "big":
        packed.byteswap()
    return packed.tobytes()


def unpack(content: bytes | memoryview) -> list[float]:
    """Return the numbers, each with the digits that it was stored with. Raises ValueError for a part of a number."""
    packed = array("d")
    packed.frombytes(bytes(content))
    if sys.byteorder == "big":
        packed.byteswap()
    return packed.tolist()


class FloatListField(models.BinaryField):
    """A list of floats."""

    def from_db_value(self, value: Any, *_: Any) -> list[float] | None:
        return None if value is None else unpack(value)

    def get_prep_value(self, value: Any) -> bytes | None:
        return value if value is None or isinstance(value, bytes) else pack(value)

    def to_python(self, value: Any) -> Any:
        """Return the list that `value_to_string` wrote into a fixture."""
        return json.loads(value) if isinstance(value, str) else value

    def value_to_string(self, obj: Any) -> str:
        return json.dumps(self.value_from_object(obj))
