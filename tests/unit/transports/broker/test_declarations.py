"""Bindings match as in AMQP, and declarations are stored without loss."""

import re

from hypothesis import given, settings
from hypothesis import strategies as st

from ami.transports.objectstore.broker.declarations import Declarations, ExchangeRecord, QueueRecord

WORDS = st.lists(st.sampled_from(["a", "b", "moth", ""]), min_size=1, max_size=5).map(".".join)
PATTERNS = st.lists(st.sampled_from(["a", "b", "moth", "*", "#"]), min_size=1, max_size=5).map(".".join)


def expected(pattern: str, key: str) -> bool:
    """AMQP 0-9-1's rule, word by word, as a regular expression over words that each end with a dot."""
    parts = {"*": r"[^.]*\.", "#": r"(?:[^.]*\.)*"}
    regex = "".join(parts.get(word, re.escape(word) + r"\.") for word in pattern.split("."))
    # An empty key has no words.
    return re.fullmatch(regex, key and key + ".") is not None


@given(PATTERNS, WORDS)
@settings(max_examples=300, derandomize=True, deadline=None)
def test_topics_match_as_in_amqp(pattern, key):
    declarations = Declarations({"t": ExchangeRecord("topic")}, {"q": QueueRecord()}, frozenset({("t", "q", pattern)}))
    assert bool(declarations.route("t", key)) == expected(pattern, key)


def test_a_queue_that_several_bindings_reach_gets_one_message():
    bindings = frozenset({("t", "q", "a.*"), ("t", "q", "#")})
    assert Declarations({"t": ExchangeRecord("topic")}, {"q": QueueRecord()}, bindings).route("t", "a.b") == ["q"]


def test_alternate_exchanges_that_name_each_other_end():
    exchanges = {
        name: ExchangeRecord("direct", arguments={"alternate-exchange": other})
        for name, other in (("a", "b"), ("b", "a"))
    }
    assert Declarations(exchanges).route("a", "x") == []


def test_the_nameless_exchange_reaches_a_queue_by_its_name():
    declarations = Declarations(queues={"q": QueueRecord()})
    assert (declarations.route("", "q"), declarations.route("", "other")) == (["q"], [])


def test_declarations_are_read_as_they_were_written():
    declarations = (
        Declarations()
        .with_exchange("t", ExchangeRecord("topic", arguments={"alternate-exchange": "x"}))
        .with_queue("q", QueueRecord(arguments={"x-delivery-limit": 20}, owner="me", auto_delete=True))
        .with_binding("t", "q", "#")
    )
    assert Declarations.load(declarations.dump()) == declarations
    assert Declarations.load(declarations.without_queue("q").dump()).bindings == frozenset()
