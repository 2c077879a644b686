"""What is typed, from bytes that may come in parts."""

from hypothesis import given
from hypothesis import strategies as st

from ami.console.top.keys import CLEAR, DOWN, ENTER, ERASE, ESCAPE, HOME, UP, KeyDecoder


def test_keys_are_read_from_the_sequences_of_a_terminal():
    found = KeyDecoder().keys("\x1b[Aj\x1bOB\x1b[1~é\r\x7f\x15".encode())
    assert found == [UP, "j", DOWN, HOME, "é", ENTER, ERASE, CLEAR]


def test_sequence_that_comes_in_parts_is_one_key():
    decoder = KeyDecoder()
    assert [decoder.keys(bytes([each])) for each in b"\x1b[A"] == [[], [], [UP]]
    assert [decoder.keys(bytes([each])) for each in "é".encode()] == [[], ["é"]]


def test_escape_alone_is_a_key_when_nothing_follows():
    decoder = KeyDecoder()
    assert decoder.keys(b"\x1b") == []
    assert decoder.is_waiting
    assert decoder.keys(b"", is_whole=True) == [ESCAPE]
    assert KeyDecoder().keys(b"\x1bq") == [ESCAPE, "q"]


def test_unknown_sequence_types_nothing():
    assert KeyDecoder().keys(b"\x1b[24;5~\x1b[200~q") == ["q"]


@given(st.lists(st.binary(max_size=12), max_size=6))
def test_any_bytes_are_printable_keys_or_names(parts: list[bytes]):
    decoder = KeyDecoder()
    for part in parts:
        assert all(key.isprintable() and key for key in decoder.keys(part))
    decoder.keys(b"", is_whole=True)
    assert not decoder.is_waiting
