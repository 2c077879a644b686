"""What goes into a journal can be read again, whatever it is."""

import json
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ami.transports.objectstore.queue import snapshot
from ami.transports.objectstore.queue.batch import decode, encode, encode_line
from ami.transports.objectstore.queue.commands import (
    Ack,
    Claim,
    Command,
    Configure,
    Enqueue,
    Purge,
    Renew,
    RenewAll,
    Rescue,
    check,
)
from ami.transports.objectstore.queue.state import State
from ami.transports.objectstore.storage.errors import StorageError

any_text = st.text(st.characters(codec=None), max_size=20)
enqueues = st.builds(
    Enqueue,
    any_text,
    st.binary(max_size=50),
    any_text,
    st.integers(-(2**70), 2**70),
    st.none() | st.floats(allow_nan=False),
    st.none() | st.floats(0, 1e12),
)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.lists(enqueues, max_size=5), st.floats(0, 1e12), any_text)
def test_any_id_and_any_bytes_come_back(commands: list[Enqueue], moment: float, token: str):
    wires = [command.wire() for command in commands]
    payloads = [payload for _, payload in wires]
    body, start = encode(moment, [encode_line(wire) for wire, _ in wires], payloads, token)
    told_moment, lines, told_start = decode(body)
    assert (told_moment, lines, told_start) == (moment, [wire for wire, _ in wires], start)
    state = State()
    state.apply(moment, lines, 1, start)
    for command in commands:
        entry = state.entries.get(command.id)
        if entry is not None and entry.checksum == zlib.crc32(command.payload):
            assert body[entry.offset : entry.offset + entry.length] == command.payload
    again = snapshot.load(snapshot.dump(state))
    assert [entry.dump() for entry in again.entries.values()] == [entry.dump() for entry in state.entries.values()]


@pytest.mark.parametrize("content", [b"", b"\n", b"{}\n", b"[", b"7\n", b"\xff\n", b"null\n"])
def test_a_batch_that_cannot_be_read_is_told_of(content: bytes):
    with pytest.raises(StorageError, match="cannot be read"):
        decode(content)


def test_a_batch_of_a_newer_version_is_refused():
    with pytest.raises(StorageError, match="format 2; this version reads 1"):
        decode(b'[2,"whatever that may mean"]\n')


def test_a_command_of_a_newer_version_is_refused():
    with pytest.raises(StorageError, match="a command '%' of a newer version"):
        State().apply(0, [["%"]], 1, 0)


def test_a_snapshot_of_a_newer_version_is_refused():
    whole = json.loads(snapshot.dump(State()))
    with pytest.raises(StorageError, match="format 2; this version reads 1"):
        snapshot.load(json.dumps({**whole, "format": 2}).encode())


@pytest.mark.parametrize("content", [b"", b"{}", b"[]", b"null", b'{"format":1}', b"\xff"])
def test_a_snapshot_that_cannot_be_read_is_told_of(content: bytes):
    with pytest.raises(StorageError, match="cannot be read"):
        snapshot.load(content)


@pytest.mark.parametrize(
    ("command", "field"),
    [
        (Enqueue(5, b""), "id"),
        (Enqueue("a", "text"), "payload"),
        (Enqueue("a", b"", priority="5"), "priority"),
        (Enqueue("a", b"", priority=None), "priority"),
        (Enqueue("a", b"", expires="soon"), "expires"),
        (Claim("1", "worker"), "limit"),
        (Claim(1, None), "owner"),
        (Claim(1, "worker", "60"), "lease_seconds"),
        (Ack(None), "id"),
        (Renew("a", "worker", "60"), "lease_seconds"),
        (RenewAll("worker", None), "lease_seconds"),
        (Rescue(None), "timeout_seconds"),
        (Configure("20"), "delivery_limit"),
    ],
)
def test_a_value_of_another_type_is_refused(command: Command, field: str):
    with pytest.raises(TypeError, match=f"{type(command).__name__}.{field} cannot be"):
        check(command)


@pytest.mark.parametrize(
    "command",
    [Enqueue("a", b"", "", 0, 5, 5), Claim(1, "worker", 60, None), Rescue(0), Configure(None), Purge(), Renew("a")],
)
def test_an_integer_is_a_float_and_none_is_where_it_may_be(command: Command):
    check(command)
