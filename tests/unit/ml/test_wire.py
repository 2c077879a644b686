"""Parsing wire models part by part gives the same outcome as pydantic on the whole text."""

import copy
import json
import random
from functools import partial

import pytest
from pydantic import ValidationError

from ami.main.services import json_layout
from ami.ml import schemas
from ami.ml.schemas import AsyncPipelineRegistrationRequest, ResultRequest, StoredTaskResult
from ami.ml.services import wire
from tests.support.product.posted_results import ERROR, RESULTS

LABELS = [f"Species {n}" for n in range(300)]
NUMBERS = [n / 7 for n in range(300)]


def request(**changes):
    result = copy.deepcopy(RESULTS)
    result["detections"][0]["classifications"][0] |= {"scores": NUMBERS, "labels": LABELS, **changes}
    return {"results": [{"reply_subject": "a", "result": result}, {"reply_subject": "b", "result": ERROR}]}


def refusal(text: bytes) -> dict[str, list[str]]:
    """Return the wrong fields of a refused text, or of the refused items of one that is taken."""
    try:
        results = wire.posted(text).results
    except wire.WireError as error:
        return error.fields
    reasons = [item.reason.split(": ", 1) for item in results if isinstance(item, wire.WrongResult)]
    assert reasons, "nothing is refused"
    return {field: [message] for field, message in reasons}


@pytest.fixture
def cut_everything(monkeypatch):
    """Parse small texts in the same way as large ones."""
    monkeypatch.setattr(json_layout, "INLINE_BYTES", 0)


def test_models_and_layouts_take_lists_of_the_same_length():
    assert json_layout.MAX_LONG_ENTRIES == schemas.MOST_LONG_ENTRIES


def test_each_item_is_its_own_text():
    items = [json.dumps(item).encode() for item in request()["results"]]
    posted = wire.posted(b'{"results": [' + b" , ".join(items) + b"]}").results
    assert [bytes(item.text) for item in posted] == items
    assert [item.reply_subject for item in posted] == ["a", "b"]


def test_long_lists_are_text_until_they_are_read(cut_everything):
    text = json.dumps(request(logits=NUMBERS)["results"][0]).encode()
    [detection] = wire.parse(bytearray(text), StoredTaskResult, build=False).result.detections
    [classification] = detection.classifications
    assert type(classification.scores).__name__ == "LongList"
    assert list(classification.scores) == list(classification.logits) == NUMBERS
    assert list(classification.labels) == LABELS
    assert (len(classification.labels), classification.labels[1]) == (300, "Species 1")


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("[" + "0," * 999 + "1e999]", "999"),
        ("[" + "0," * 999 + ",1]", ""),
        ("[" + "0," * 999 + "01]", ""),
        ("[" + "0," * 999 + '"x"]', "999"),
        ("[" + "0," * 999 + "NaN]", "999"),
        ("[" + "0," * 100_000 + "0]", ""),
    ],
)
def test_a_wrong_long_list_is_refused_with_its_field(cut_everything, value, message):
    text = json.dumps(request()).replace(json.dumps(NUMBERS), value)
    [field] = refusal(text.encode())
    where = "detections.0.classifications.0.scores"
    assert field in (
        f"results.0.result.results.{where}" + (f".{message}" if message else ""),
        f"results.0.result.{where}",
    )


@pytest.mark.parametrize("label", ['"' + "x" * 256 + '"', '"a\\u0000"', '"\\ud800"', "true", "null"])
def test_a_wrong_label_in_a_long_list_is_refused(label):
    text = json.dumps(request()).replace('"Species 7"', label)
    assert all(field.startswith("results.0.result.") for field in refusal(text.encode()))


@pytest.mark.parametrize("key", ["algorithms", "errors", "unknown"])
def test_an_item_of_too_many_elements_names_the_key(key):
    wanted = request()
    wanted["results"][1]["result"] = {**RESULTS, key: {"a": [{}] * 20_000}}
    assert list(refusal(json.dumps(wanted).encode())) == [f"results.1.result.{key}"]


@pytest.mark.parametrize("key", ["client_info", "unknown"])
def test_too_many_elements_outside_the_items_name_the_key(key):
    assert list(refusal(json.dumps({**request(), key: {"a": [{}] * 20_000}}).encode())) == [f"{key}.a"]


def test_a_placeholder_of_ours_cannot_be_sent(cut_everything):
    forged = json.dumps(request()).replace(json.dumps(LABELS), '"\\u00000"').encode()
    assert list(refusal(forged)) == ["results.0.result.detections.0.classifications.0.labels"]
    assert list(refusal(b'{"results": ["\\u00000", {"reply_subject": "a", "result": {"error": "x"}}]}')) == [
        "results.0"
    ]


def mutated(text: str, rng: random.Random) -> str:
    """Return the text with one to three pieces removed, repeated, or replaced."""
    pieces = ["{", "}", "[", "]", ",", ":", '"', "\\", "null", "0", "1e999", '"x"', '"results":[],', " ", "\n", "é"]
    for _ in range(rng.randint(1, 3)):
        start = rng.randrange(len(text))
        end = min(len(text), start + rng.choice((0, 1, 1, 5, 20)))
        text = text[:start] + rng.choice(("", text[start:end] * 2, rng.choice(pieces))) + text[end:]
    return text


def test_cut_texts_are_taken_and_refused_as_whole_ones_are(cut_everything):
    taken = 0
    short = request(scores=NUMBERS[:3], labels=LABELS[:3], logits=[1, -2.5e3])
    for seed in range(1500):
        text = mutated(json.dumps(short), random.Random(seed)).encode()
        try:
            whole = ResultRequest.model_validate_json(text)
        except ValidationError as error:
            fields = refusal(text)
            if "Invalid JSON" not in str(error) and not any("JSON" in said for m in fields.values() for said in m):
                paths = {".".join(map(str, one["loc"])) or "body" for one in error.errors()}
                assert set(fields) <= paths, (seed, text)
        else:
            taken += 1
            posted = wire.posted(text).results
            assert [item.reply_subject for item in posted] == [item.reply_subject for item in whole.results]
            for item, expected in zip(posted, whole.results, strict=True):
                built = wire.parse(bytes(item.text), StoredTaskResult)
                assert built.result == expected.result, (seed, text)
    assert taken > 100


def registration(classes: int, maps: int = 1, **more) -> bytes:
    data = [{"index": n, "label": f"Species {n}", **more} for n in range(classes)]
    algorithm = {"task_type": "classification", "category_map": {"data": data, "labels": [d["label"] for d in data]}}
    algorithms = [{"name": f"a{n}", "key": f"k{n}", **algorithm} for n in range(maps)]
    pipelines = [{"name": "p", "slug": "p", "version": 1, "algorithms": algorithms}]
    return json.dumps({"processing_service_name": "worker", "pipelines": pipelines}).encode()


def test_a_registration_with_29176_classes_is_taken_whole():
    wanted = wire.parse(registration(29_176, taxon_rank="SPECIES"), AsyncPipelineRegistrationRequest)
    category_map = wanted.pipelines[0].algorithms[0].category_map
    assert category_map.data[29_175] == {"index": 29_175, "label": "Species 29175", "taxon_rank": "SPECIES"}
    assert (type(category_map.data), type(category_map.labels), len(category_map.labels)) == (list, list, 29_176)


@pytest.mark.parametrize(
    ("made", "field"),
    [
        (partial(registration, 100_001), "pipelines.0.algorithms.0.category_map.data"),
        (partial(registration, 60_000, 9), "pipelines"),
        (partial(registration, 20_000, x=[]), "pipelines"),
        (partial(registration, 2000, x="\0"), "pipelines.0.algorithms.0.category_map.data"),
    ],
)
def test_a_registration_of_too_much_is_refused_with_its_field(made, field):
    text = made()
    with pytest.raises(wire.WireError) as refused:
        wire.parse(text, AsyncPipelineRegistrationRequest)
    assert list(refused.value.fields) == [field]
