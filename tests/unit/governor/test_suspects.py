"""Suspects: which tasks were running at a crash, and which of them are poison."""

import json
from pathlib import Path

import pytest

from ami.governor.crash_log import Entry
from ami.governor.suspects import Suspects

MIB = 1024


def entry(task_id: str, kib: int = 300 * MIB) -> Entry:
    return Entry(11, "ml.detect", task_id, 1.5, kib)


def test_second_crash_makes_a_suspect_poison_with_a_reason(tmp_path: Path) -> None:
    suspects = Suspects(tmp_path)
    suspects.record_crash([entry("a"), entry("b")])
    assert suspects.open == {"a", "b"}
    assert not suspects.is_poison("a")
    Suspects(tmp_path).record_crash([entry("a", 900 * MIB)])
    later = Suspects(tmp_path)
    assert later.open == {"b"}
    assert not later.is_poison("b")
    assert not later.is_poison("c")
    assert later.is_poison("a")
    sentence = later.poison_reason("a")
    assert sentence.startswith("ml.detect[a] was running each of the 2 times this worker was killed without warning")
    assert "900 MiB" in sentence


def test_task_that_ends_without_a_crash_is_cleared(tmp_path: Path) -> None:
    suspects = Suspects(tmp_path)
    suspects.record_crash([entry("a"), entry("b")])
    suspects.clear("a")
    suspects.clear("never seen")
    assert Suspects(tmp_path).open == {"b"}
    suspects.record_crash([entry("a")])
    assert not suspects.is_poison("a")


def test_suspects_expire_and_poison_does_not(tmp_path: Path) -> None:
    suspects = Suspects(tmp_path)
    suspects.record_crash([entry("a"), entry("b")])
    suspects.record_crash([entry("a")])
    suspects.expire()
    for known in (suspects, Suspects(tmp_path)):
        assert known.open == frozenset()
        assert known.is_poison("a")


def test_only_the_newest_suspects_are_kept(tmp_path: Path) -> None:
    suspects = Suspects(tmp_path)
    for number in range(Suspects.KEPT + 5):
        suspects.record_crash([entry(f"id-{number}")])
    suspects.record_crash([entry("id-5")])  # The oldest that is left, and now the newest.
    suspects.record_crash([entry("newest")])
    known = Suspects(tmp_path)
    assert len(json.loads((tmp_path / "suspects.json").read_text())) == Suspects.KEPT
    assert known.is_poison("id-5")
    assert "id-6" not in known.open
    assert {"id-7", "newest"} <= known.open


@pytest.mark.parametrize(
    "content", [b"", b'{"a": {"deaths"', b"\xff\xfe", b"[1]", b"null", b'{"a": 2}', b'{"a": {"task": "ml.detect"}}']
)
def test_torn_or_foreign_file_counts_as_no_suspects(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "suspects.json").write_bytes(content)
    suspects = Suspects(tmp_path)
    assert suspects.open == frozenset()
    assert not suspects.is_poison("a")
    suspects.record_crash([entry("a")])
    assert Suspects(tmp_path).open == {"a"}


def test_suspects_stay_in_memory_when_they_cannot_be_saved(tmp_path: Path) -> None:
    suspects = Suspects(tmp_path / "missing")
    suspects.record_crash([entry("a")])
    assert suspects.open == {"a"}
