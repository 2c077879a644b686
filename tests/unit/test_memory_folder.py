"""The temporary folder of a run: in memory where there is room, gone afterwards, kept where a test failed."""

import os
from pathlib import Path

import pytest

from tests.support import memory_folder
from tests.support.memory_folder import PREFIX, VARIABLE, on_disk, temporary_files_in_memory


@pytest.fixture(autouse=True)
def roomy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_folder, "FREE_BYTES", 0)
    monkeypatch.delenv(VARIABLE, raising=False)


def test_folder_is_there_for_the_run_only(tmp_path: Path):
    with temporary_files_in_memory(tmp_path) as folder:
        assert folder.path
        assert folder.path.parent == tmp_path
        assert os.environ[VARIABLE] == str(folder.path)
        assert folder.path.stat().st_mode & 0o777 == 0o711
        assert VARIABLE not in on_disk(dict(os.environ))
    assert VARIABLE not in os.environ
    assert list(tmp_path.iterdir()) == []


def test_folder_of_a_failed_run_is_kept_until_the_next(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    with temporary_files_in_memory(tmp_path) as folder:
        folder.keep()
    assert folder.path
    assert str(folder.path) in capsys.readouterr().out
    ended = tmp_path / f"{PREFIX}999999999-x"
    folder.path.rename(ended)
    running = tmp_path / f"{PREFIX}{os.getpid()}-x"
    running.mkdir()
    with temporary_files_in_memory(tmp_path):
        assert (ended.exists(), running.exists()) == (False, True)


@pytest.mark.parametrize("why", ["chosen", "short", "missing"])
def test_disk_stays_in_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, why: str):
    if why == "chosen":
        monkeypatch.setenv(VARIABLE, "/elsewhere")
    if why == "short":
        monkeypatch.setattr(memory_folder, "FREE_BYTES", 2**62)
    before = os.environ.get(VARIABLE)
    with temporary_files_in_memory(tmp_path / "missing" if why == "missing" else tmp_path) as folder:
        assert folder.path is None
        folder.keep()
        assert os.environ.get(VARIABLE) == before
        assert on_disk(dict(os.environ)).get(VARIABLE) == before
    assert list(tmp_path.iterdir()) == []
