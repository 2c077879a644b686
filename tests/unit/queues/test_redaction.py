"""Secrets in texts and JSON are masked, everything else stays, and a mask that comes back is its secret again."""

import json

import pytest

from ami.queues.redaction import MASK, Unrestorable, is_secret_name, redact, redact_text, restore

SECRET = "s3cr3t-Wert"


@pytest.mark.parametrize(
    "text",
    [
        f"https://antenna:{SECRET}@service.example/x",
        f"https://antenna:a@{SECRET}@service.example",
        f"https://{SECRET}@service.example",
        f"s3://AKIA:12/{SECRET}/x@bucket/prefix",
        f"cannot read objectstore+s3://AKIA:/{SECRET}@bucket/prefix, retrying",
        f"http://AKIA:ab/{SECRET}@minio:9000/bucket",
        f"amqp://antenna:1/{SECRET}@rabbitmq:5672//",
        f"https://u:a@h,amqp://u:b/{SECRET}@h",
        f"ConnectError: no answer from amqp://antenna:{SECRET}@rabbitmq:5672//",
        f"password={SECRET} host=x",
        f"the password: {SECRET}, and more",
        f'{{"password": "{SECRET}", "a": 1}}',
        f'{{"a": ["https://u:{SECRET}@h"]}}',
        f"\"{{'password': '{SECRET} with spaces', 'n': 1}}\"",
        json.dumps(json.dumps({"hf_token": SECRET})),
        f"Authorization: Token {SECRET}",
        f"Authorization: Bearer {SECRET}",
        f"Token {SECRET}{'0' * 20}",
        f"https://bucket.example/x.csv?X-Amz-Credential=a&X-Amz-Signature={SECRET}&a=1",
        f"AWS_SECRET_ACCESS_KEY={SECRET}",
        f"--api-key={SECRET}",
        f"-----BEGIN RSA PRIVATE KEY-----\n{SECRET}\n-----END RSA PRIVATE KEY-----",
    ],
)
def test_secret_in_a_text_is_masked(text: str):
    assert SECRET in text
    assert SECRET not in redact_text(text)
    assert MASK in redact_text(text)


@pytest.mark.parametrize(
    "text",
    ["", "Noctua pronuba", "https://service.example/a@b", "Token expired", "routing_key=antenna", '{"max_tokens": 512}']
    + ['{"a": "keyword: 7"}', "a@b.example wrote https://h/x", '[1, "two"]', "monkey: 3", "{not json"]
    + ["http://h:80/a@b", "s3://bucket/a@b", "http://[::1]:8/a@b"],
)
def test_text_without_a_secret_stays_as_it_is(text: str):
    assert redact_text(text) == text


@pytest.mark.parametrize("name", ["password", "db_password", "apiKey", "secret_key", "aws_access_key_id", "hf_token"])
def test_name_of_a_secret_is_known(name: str):
    assert is_secret_name(name)


@pytest.mark.parametrize("name", ["key", "max_tokens", "routing_key", "slug", "author", "design", "tokenizer"])
def test_other_names_are_no_secrets(name: str):
    assert not is_secret_name(name)


def test_long_text_takes_no_long_time():
    redact_text("a_" * 50_000 + "password" + "://" + "@" * 50_000 + "s3://:" * 20_000 + ":" * 50_000)


STORED = {
    "url": f"https://u:{SECRET}@h",
    "token": SECRET,
    "n": 1,
    "list": [{"password": SECRET}],
    "secret": {"a": SECRET},
}


def test_masks_that_come_back_are_the_secrets_again():
    masked = redact(STORED)
    assert SECRET not in json.dumps(masked)
    assert restore(masked, STORED) == STORED
    assert restore({**masked, "n": 2, "token": "new"}, STORED) == {**STORED, "n": 2, "token": "new"}
    assert restore({"n": 3}, STORED) == {"n": 3}


def test_masks_in_a_text_of_json_come_back_too():
    text = json.dumps(STORED)
    edited = json.dumps({**json.loads(redact_text(text)), "n": 5})
    assert json.loads(restore(edited, text)) == {**STORED, "n": 5}


def test_browser_that_sends_other_line_ends_keeps_the_secret():
    text = f"two lines, password={SECRET}\nthe second "
    assert restore(redact_text(text).replace("\n", "\r\n").strip(), text) == text


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        (f"https://u:{MASK}@other.example", f"https://u:{SECRET}@h"),
        ({"elsewhere": f"x {MASK}"}, STORED),
        ([f"https://u:{MASK}@h"], []),
    ],
)
def test_mask_in_another_place_is_refused(given: object, stored: object):
    with pytest.raises(Unrestorable):
        restore(given, stored)


def nested(depth: int, inside: object, kind: str = "list") -> object:
    """Return a value in so many lists, or objects, or both in turn."""
    for level in range(depth):
        is_list = kind == "list" or (kind == "both" and level % 2)
        inside = [inside] if is_list else {"a": inside}
    return inside


@pytest.mark.parametrize("kind", ["list", "object", "both"])
@pytest.mark.parametrize("depth", [101, 250, 450, 900])
def test_what_is_nested_too_deeply_is_masked_whole(depth: int, kind: str):
    value = nested(depth, f"token {SECRET}", kind)
    masked, text = json.dumps(redact(value)), json.dumps(value)
    assert SECRET not in masked
    assert masked.count("[") + masked.count("{") == 100
    assert SECRET not in redact_text(text)
    assert SECRET not in json.dumps(redact({"password": value}))
    assert SECRET not in json.dumps(redact({"a": (value,)}))
    assert SECRET not in redact_text(json.dumps({"a": text}))


def test_what_is_nested_less_deeply_stays_as_it_is():
    value = nested(100, "no secret, but a token's name")
    assert redact(value) == value
    assert redact_text(json.dumps(value)) == json.dumps(value)
    assert redact(nested(99, {"password": SECRET})) == nested(99, {"password": MASK})


def test_text_of_thousands_of_brackets_is_masked_whole():
    assert redact_text("[" * 5000 + f'{{"password": ["{SECRET}"]}}' + "]" * 5000) == MASK
    assert redact_text("[" * 600 + "token" + "]" * 600).count("[") == 600, "it is no JSON"


def test_json_in_the_texts_of_json_counts_as_nested():
    text = f"password={SECRET}"
    for _ in range(12):
        text = json.dumps(nested(99, text))
    assert SECRET not in redact_text(text)


def test_masks_of_what_is_nested_too_deeply_are_restored_and_no_edit_is_lost():
    stored = {"deep": nested(500, f"token {SECRET}"), "name": "before"}
    shown = redact(stored)
    assert restore(shown, stored) == stored
    edited = restore({**shown, "name": "after"}, stored)
    assert (edited["deep"], edited["name"]) == (stored["deep"], "after")
    with pytest.raises(Unrestorable, match="deeper than 100"):
        restore({"deep": nested(500, MASK), "name": "after"}, stored)
    with pytest.raises(Unrestorable):
        restore("[" * 5000 + MASK, "[" * 5000)
