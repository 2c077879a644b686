"""The layout of a JSON text: bounds without parsing, and parts cut where the parser would cut them."""

import json
import time
from contextlib import suppress

import pytest

from ami.main.services.json_layout import (
    INLINE_BYTES,
    MAX_SKELETON_BYTES,
    NUMBERS,
    OBJECTS,
    TEXTS,
    Bounds,
    LayoutError,
    layout_of,
)

BOUNDS = Bounds(elements=100, depth=5)
LISTS = {("a", 0, "scores"): NUMBERS, ("a", 0, "labels"): TEXTS, ("data",): OBJECTS}
LONG = "[" + "0," * INLINE_BYTES + "0]"


def refused(text: str | bytes, items_in: str | None = None) -> LayoutError:
    with pytest.raises(LayoutError) as found:
        layout_of(text.encode() if isinstance(text, str) else text, BOUNDS, LISTS, items_in)
    return found.value


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ('{"x": [' + "0," * 100 + "0]}", "x"),
        ('{"x": {"y": [' + '{"":0},' * 100 + "0]}}", "x.y"),
        ('{"x": ' + "[" * 9 + "]" * 9 + "}", "x"),
        ('{"a": [{"other": ' + LONG + "}]}", "a"),
        ('{"scores": ' + LONG + "}", "scores"),
        ('{"a": [{"\\u0073cores": ' + LONG + "}]}", "a"),
    ],
)
def test_too_many_elements_or_levels_are_refused_with_their_field(text, field):
    assert refused(text).field == field


def test_a_long_flat_list_at_its_path_is_not_counted():
    text = ('{"a": [{"scores": ' + LONG + ', "labels": ["' + '","'.join("x" * 300) + '"]}], "b": 1}').encode()
    layout = layout_of(text, BOUNDS, LISTS)
    assert [text[cut.start : cut.end][:3] for cut in layout.outer.cuts] == [b"[0,", b'["x']
    assert json.loads(layout.skeleton(layout.outer)) == {"a": [{"scores": "\x000", "labels": "\x001"}], "b": 1}


def test_a_category_map_of_29176_classes_is_not_counted():
    data = [{"index": i, "label": f'Noctua "{i}", [x] {{y}}', "taxon_rank": "SPECIES"} for i in range(29_176)]
    assert layout_of(json.dumps({"data": data}).encode(), BOUNDS, LISTS).outer.elements < 10


@pytest.mark.parametrize("value", ["[[0]]", "[{}]", '["a", 0]', "[NaN]", "[true]", "{}"])
def test_list_of_another_kind_is_counted_not_cut(value):
    layout = layout_of(f'{{"a": [{{"scores": {value}}}]}}'.encode(), BOUNDS, LISTS)
    assert layout.outer.cuts == []


def test_more_than_100000_entries_are_refused_despite_commas_in_texts():
    message = str(refused('{"a": [{"scores": [' + "0," * 100_000 + "0]}]}"))
    assert message == "List should have at most 100000 items after validation, not 100001"
    assert refused('{"a": [{"labels": [' + '"",' * 100_000 + '""]}]}').field == "a.0.labels"
    commas = '{"a": [{"labels": ["' + "," * 1000 + '"' + ',","' * 50_000 + "]}]}"
    assert len(layout_of(commas.encode(), BOUNDS, LISTS).outer.cuts) == 1


def test_items_are_separate_parts():
    text = b'{"x": 1, "results": [{"a": [0, 1]}, 5, {"b": {}}], "y": []}'
    layout = layout_of(text, BOUNDS, {}, items_in="results")
    assert [layout.skeleton(part) for part in layout.items] == [b'{"a": [0, 1]}', b'{"b": {}}']
    assert json.loads(layout.skeleton(layout.outer))["results"] == ["\x000", 5, "\x001"]
    each = '{"a": [' + "0," * 90 + "0]}"
    assert len(layout_of(f'{{"results": [{each},{each}]}}'.encode(), BOUNDS, {}, items_in="results").items) == 2
    more = '{"a": [' + "0," * 100 + "0]}"
    first, second = layout_of(f'{{"results": [{each},{more}]}}'.encode(), BOUNDS, {}, items_in="results").items
    assert (first.wrong, second.wrong[0]) == (None, ("results", 1, "a"))
    deep = "[" * 10_001 + "]" * 10_001
    assert "levels deep" in str(refused(f'{{"results": [{each},{deep}]}}', "results"))


@pytest.mark.parametrize("text", ['"', '{"a": "', "]", "[}}", '"a" "b"', '""""', '{"a" "b"}', '{"a": "b" "c": 1}'])
def test_text_that_cannot_be_scanned_is_refused(text):
    assert "Invalid JSON" in str(refused(text))


@pytest.mark.parametrize("value", ['"a\\u0000b"', '"\\ud800"', '"\\udc00\\ud800"', '"\\uDbFf\\u0041"', '"\\\\\\u0000"'])
def test_unstorable_text_is_refused_with_its_field(value):
    layout = layout_of(f'{{"a": [{{"scores": {LONG}}}, {{"b": {value}}}]}}'.encode(), BOUNDS, LISTS)
    with pytest.raises(LayoutError) as found:
        layout.skeleton(layout.outer)
    assert found.value.field == "a.1.b"


@pytest.mark.parametrize("value", ['"\\ud83e\\udd8b"', '"\\\\u0000"', '"\\\\ud800"', '"\\u00e9"'])
def test_storable_escapes_are_accepted(value):
    text = f'{{"a": {value}}}'.encode()
    layout = layout_of(text, BOUNDS, LISTS)
    assert layout.skeleton(layout.outer) == text


HOSTILE = {
    "digits": b"1",
    "quotes": b'"',
    "empty texts": b'"",',
    "backslashes": b"\\",
    "text of backslashes": b'{"a":"' + b"\\" * 9,
    "escaped quotes": b'\\"',
    "open brackets": b"[",
    "closed brackets": b"]",
    "empty objects": b"{},",
    "commas": b",",
    "keys": b'"a":',
    "flat lists": b'{"data":[{"":""},',
    "labels": b'{"a":[{"labels":["a,',
}


@pytest.mark.parametrize("unit", HOSTILE.values(), ids=HOSTILE)
@pytest.mark.parametrize("head", [b"", b"[", b'{"a":[{"labels":["', b'{"a":[{"scores":[0,', b'{"data":[{"a":"'])
def test_scan_time_is_linear(unit, head):
    def seconds(size: int) -> float:
        text = head + unit * (size // len(unit))
        began = time.process_time()
        with suppress(LayoutError):
            layout_of(text, BOUNDS, LISTS)
        return time.process_time() - began

    small, large = seconds(200_000), seconds(800_000)
    assert large < max(16 * small, 0.5)


def test_bytes_outside_long_lists_are_bounded():
    assert refused('{"a": "' + "x" * (MAX_SKELETON_BYTES + 1) + '"}').field == "body"
