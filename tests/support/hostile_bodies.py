"""Bodies and header tables of hostile messages."""

import bz2
import json
import lzma
import pickle
import struct
import zlib
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import amqp.serialization

MIB = 1024**2


def embedding(**embedded: Any) -> bytes:
    """Return a proper body but for what it has to do afterwards."""
    return json.dumps([["hostile"], {}, embedded]).encode()


PROPER = embedding(callbacks=None, errbacks=None, chain=None, chord=None)


class _Touch:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str, str]]:
        return open, (str(self.path), "w")


def pickled(path: Path) -> bytes:
    """Return a pickle that makes a file when it is loaded."""
    return pickle.dumps([["hostile"], {"x": _Touch(path)}, {}])


def yaml(path: Path) -> bytes:
    """Return YAML that makes a file when it is loaded with all tags."""
    return f"- [hostile]\n- x: !!python/object/apply:os.system ['touch {path}']\n- {{}}\n".encode()


@cache
def zlib_bomb(mib: int) -> bytes:
    """Return a body that is so large when decompressed: a proper one, with blanks behind it."""
    return _compressed(zlib.compressobj(9), mib)


@cache
def bz2_bomb(mib: int) -> bytes:
    """Return the same for bzip2."""
    return _compressed(bz2.BZ2Compressor(1), mib)


@cache
def lzma_bomb(mib: int) -> bytes:
    """Return the same for lzma."""
    return _compressed(lzma.LZMACompressor(preset=0), mib)


def _compressed(compressor: Any, mib: int) -> bytes:
    blanks = b" " * MIB
    parts = [compressor.compress(PROPER), *(compressor.compress(blanks) for _ in range(mib)), compressor.flush()]
    return b"".join(parts)


def nested(depth: int) -> Any:
    """Return lists within lists."""
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


def table(proper: Mapping[str, Any], fields: Mapping[str, bytes]) -> bytes:
    """Return an AMQP table of proper headers and of fields that are encoded already, which replace them."""
    kept = {name: value for name, value in proper.items() if name not in fields}
    content = amqp.serialization.dumps("F", [kept])[4:]
    for name, value in fields.items():
        content += struct.pack(">B", len(name)) + name.encode() + value
    return bytes(content)


def deep_table(depth: int) -> bytes:
    """Return a table field within table fields."""
    value = b"V"
    for _ in range(depth):
        value = b"F" + struct.pack(">I", len(value) + 2) + b"\x01a" + value
    return value


def deep_array(depth: int) -> bytes:
    """Return an array field within array fields."""
    value = b"V"
    for _ in range(depth):
        value = b"A" + struct.pack(">I", len(value)) + value
    return value
