"""Finds the secrets in texts and JSON, for pages and logs that must not show them, and puts them back after an edit."""

import json
import re
from typing import Any

from ami.environment.url_login import LOGIN

#: What stands where a secret was.
MASK = "********"

#: What is nested deeper is masked whole: a walk of it would end at Python's own limit.
MOST_DEPTH = 100

_WORDS = r"passwords?|passwd|pwd|secrets?|token|credentials?|authorization|signature|cookie"
_KEYS = r"(?:api|access|secret|private|account|encryption|auth)[_-]?key(?:[_-]?id)?"
#: A name whose value is a secret: `password`, `hf_token`, `aws_access_key_id`, `X-Amz-Signature`; not `max_tokens`.
_NAME = rf"(?:[\w-]*[_-])?(?:{_WORDS}|{_KEYS}|x-amz-credential|awsaccesskeyid|sig)"

_SECRET_NAME = re.compile(_NAME, re.IGNORECASE)
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
#: One quick search decides whether a text is looked at more closely.
_HINT = re.compile(r"://|pass|pwd|secret|token|cred|auth|sig|cookie|key|bearer", re.IGNORECASE)
_PAIR = re.compile(
    rf"(?P<name>(?<![\w-]){_NAME}\\*[\"']?\s*[:=]\s*)(?:(?P<quote>\\*[\"'])(?P<quoted>.*?)(?P=quote)"
    rf"|(?P<bare>(?:(?:token|bearer|basic)\s+)?[^\s\"'\\&,;}}\])<>]+))",
    re.IGNORECASE,
)
_HEADER = re.compile(r"\b(?P<kind>token|bearer)\s+[\w.~+/=-]{20,}", re.IGNORECASE)
_PRIVATE_KEY = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL)


class Unrestorable(ValueError):
    """A masked value came back in another place, so that it is unknown which secret it stands for."""


def is_secret_name(name: str) -> bool:
    """Whether every value under this name is a secret."""
    return _SECRET_NAME.fullmatch(_CAMEL.sub("_", name).strip()) is not None


def redact(value: Any, depth: int = 0) -> Any:
    """Return ``value`` with its secrets masked; texts, and dictionaries and lists of them, also in texts.

    ``depth`` is in how many it lies already.
    """
    if isinstance(value, str):
        return redact_text(value, depth)
    if not isinstance(value, (dict, list, tuple)):
        return value
    if depth >= MOST_DEPTH:
        return MASK
    inner = depth + 1
    if isinstance(value, dict):
        return {
            key: _hide(item, inner) if is_secret_name(str(key)) else redact(item, inner) for key, item in value.items()
        }
    return [redact(item, inner) for item in value]


def _hide(value: Any, depth: int) -> Any:
    if isinstance(value, (dict, list)) and depth < MOST_DEPTH:
        if isinstance(value, dict):
            return {key: _hide(item, depth + 1) for key, item in value.items()}
        return [_hide(item, depth + 1) for item in value]
    return value if value is None or isinstance(value, bool) or value == "" else MASK


def redact_text(text: str, depth: int = 0) -> str:
    """Return a text with passwords in URLs, values of secret names, tokens and private keys masked."""
    if not _HINT.search(text):
        return text
    if text[:1] in {"{", "["}:
        try:
            parsed = _parsed(text)
        except RecursionError:
            return MASK
        if parsed is not None:
            masked = redact(parsed, depth)
            return text if masked == parsed else json.dumps(masked)
    text = _PRIVATE_KEY.sub(MASK, text)
    text = LOGIN.sub(_without_password, text)
    text = _PAIR.sub(lambda found: f"{found['name']}{found['quote'] or ''}{MASK}{found['quote'] or ''}", text)
    return _HEADER.sub(lambda found: f"{found['kind']} {MASK}", text)


def _without_password(found: re.Match[str]) -> str:
    user, colon, _ = found[0][:-1].partition(":")
    # Without a password the user may be a token itself.
    return f"{user}:{MASK}@" if colon else f"{MASK}@"


def _parsed(text: str) -> Any:
    """Return the JSON in a text, None where it is none. Raises RecursionError."""
    try:
        return json.loads(text)
    except ValueError:
        return None


def restore(given: Any, stored: Any, depth: int = 0) -> Any:
    """Return ``given``, an edited copy of ``redact(stored)``, with the stored secrets where masks were left.

    Raises:
        Unrestorable: a mask stands where ``stored`` has no secret, or ``given`` is nested too deeply.
    """
    if isinstance(given, (dict, list)) and depth >= MOST_DEPTH:
        raise Unrestorable(f"Nested deeper than {MOST_DEPTH} levels; such a value is not shown, and cannot be edited.")
    if _as_browsers_send(given) == _as_browsers_send(redact(stored, depth)):
        return stored
    if isinstance(given, dict):
        before = stored if isinstance(stored, dict) else {}
        return {key: _restored(str(key), item, before.get(key), depth + 1) for key, item in given.items()}
    if isinstance(given, list):
        same_length = isinstance(stored, list) and len(stored) == len(given)
        return [restore(item, stored[index] if same_length else None, depth + 1) for index, item in enumerate(given)]
    if isinstance(given, str) and MASK in given:
        return _restored_text(given, stored, depth)
    return given


def _as_browsers_send(value: Any) -> Any:
    return value.replace("\r\n", "\n").strip() if isinstance(value, str) else value


def _restored(key: str, given: Any, stored: Any, depth: int) -> Any:
    if is_secret_name(key) and stored is not None and given == _hide(stored, depth):
        return stored
    return restore(given, stored, depth)


def _restored_text(given: str, stored: Any, depth: int) -> str:
    texts = (text if isinstance(text, str) and text[:1] in {"{", "["} else "" for text in (given, stored))
    try:
        new, old = map(_parsed, texts)
    except RecursionError:
        new = old = None
    if new is None or old is None:
        raise Unrestorable(f"Type the whole value again: {MASK} stands for a secret that is not shown.")
    return json.dumps(restore(new, old, depth))
