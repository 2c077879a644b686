"""The memory of AMD's GPUs from the JSON that AMD's tools print; no AMD GPU was at hand."""

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ami.governor.probes.machine import Machine
from ami.governor.probes.rocm import EVERY_SECONDS, TIMEOUT_SECONDS, Rocm, highest
from tests.support.place import until

DATA = Path(__file__).parents[2] / "support/governor/rocm"
ANSWERS = {path.stem: json.loads(path.read_text()) for path in sorted(DATA.glob("*.json"))}


class Tool:
    """A tool in a folder that prints what a test sets, and records its arguments."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.now = folder, 1000.0
        self.rocm = Rocm(self.which, lambda: self.now)

    def which(self, name: str) -> str | None:
        path = self.folder / name
        return str(path) if path.exists() else None

    def does(self, name: str, script: str) -> None:
        path = self.folder / name
        path.write_text(f'#!/bin/sh\necho "$@" >> "{self.folder}/calls"\n{script}\n')
        path.chmod(0o755)

    def prints(self, name: str, answer: Any) -> None:
        (self.folder / "answer").write_text(json.dumps(answer))
        self.does(name, f'cat "{self.folder}/answer"')

    @property
    def calls(self) -> list[str]:
        path = self.folder / "calls"
        return path.read_text().splitlines() if path.exists() else []

    def percent(self) -> float | None:
        """Return what the next question finds when the tool has ended."""
        self.rocm.percent()
        running = self.rocm._running
        assert running is not None
        running.wait(60)
        return self.rocm.percent()


@pytest.fixture
def tool(tmp_path: Path) -> Iterator[Tool]:
    made = Tool(tmp_path)
    yield made
    made.rocm.close()


def test_without_a_tool_there_is_no_percent(tool: Tool):
    assert tool.rocm.percent() is None
    tool.prints("amd-smi", [])
    assert tool.rocm.percent() is None, "it is not looked for again"


@pytest.mark.parametrize("name", ANSWERS)
def test_documented_answers_give_the_fullest_gpu(name: str):
    answer = ANSWERS[name]
    assert "https://github.com/ROCm/" in answer["source"]
    assert highest(json.dumps(answer["output"]).encode()) == pytest.approx(answer["percent"], abs=0.01)


@pytest.mark.parametrize("answer", [[], {"gpu_data": []}, {"system": {}}, ANSWERS["amd_smi_list"]["output"][2:]])
def test_no_gpu_that_shows_its_memory_is_none(answer: Any):
    assert highest(json.dumps(answer).encode()) is None


@pytest.mark.parametrize("text", ["", "WARNING: no GPU", "[1]", '{"card0": {}}', '[{"gpu": 0}]', "7"])
def test_another_answer_is_an_error_that_shows_it(text: str):
    with pytest.raises(ValueError, match="unexpected JSON of AMD's tool"):
        highest(text.encode())


@pytest.mark.processes
@pytest.mark.parametrize("name", ANSWERS)
def test_tool_is_called_as_documented_and_its_answer_is_read_later(tool: Tool, name: str):
    command, *arguments = ANSWERS[name]["command"].split()
    tool.prints(command, ANSWERS[name]["output"])
    assert tool.percent() == pytest.approx(ANSWERS[name]["percent"], abs=0.01)
    assert tool.calls == [" ".join(arguments)]
    tool.rocm.percent()
    assert len(tool.calls) == 1, "not again before its interval is over"
    tool.now += EVERY_SECONDS
    tool.percent()
    until(lambda: len(tool.calls) == 2, 30, "it is called again")


@pytest.mark.processes
def test_newer_tool_goes_before_the_older(tool: Tool):
    tool.prints("amd-smi", ANSWERS["amd_smi_list"]["output"])
    tool.does("rocm-smi", "exit 1")
    assert tool.percent() == pytest.approx(90)


@pytest.mark.processes
def test_failing_tool_is_a_fault_and_is_tried_again(tool: Tool, tmp_path: Path):
    tool.does("amd-smi", "exit 3")
    with pytest.raises(OSError, match="amd-smi ended with exit code 3"):
        tool.percent()
    tool.prints("amd-smi", ANSWERS["amd_smi_list"]["output"])
    tool.now += EVERY_SECONDS
    assert tool.percent() == pytest.approx(90)


@pytest.mark.processes
def test_tool_that_does_not_answer_is_ended(tool: Tool):
    tool.does("amd-smi", "exec sleep 600")
    assert tool.rocm.percent() is None
    assert tool.rocm.percent() is None
    tool.now += TIMEOUT_SECONDS
    with pytest.raises(OSError, match="amd-smi ended with exit code -9"):
        tool.rocm.percent()
    assert tool.rocm._running is not None, "it was started again"


@pytest.mark.parametrize(
    ("nvidia", "amd", "percent"), [(50.0, None, 50.0), (None, 70.0, 70.0), (50.0, 70.0, 70.0), (None, None, None)]
)
def test_gpu_of_a_sample_is_the_fuller_of_both_makers(nvidia: float, amd: float, percent: float):
    probes = [SimpleNamespace(percent=lambda value=value: value) for value in (nvidia, amd)]
    assert Machine(gpu=probes[0], rocm=probes[1]).read().gpu_percent == percent
