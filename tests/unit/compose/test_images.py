"""The images: what any builder can build, no compiler, no root, and start scripts that become their process."""

import re
import shutil
import subprocess
import sys

import pytest

from tests.places import ROOT

DOCKERFILES = sorted((ROOT / "compose").glob("*Dockerfile"))
SCRIPTS = sorted((ROOT / "compose/start").iterdir())


def instructions(path) -> list[str]:
    text = path.read_text().replace("\\\n", " ")
    return [line for line in text.splitlines() if line and not line.startswith("#")]


def test_there_is_one_image_for_antenna_and_one_for_the_processing_service():
    assert [path.name for path in DOCKERFILES] == ["Dockerfile", "processing.Dockerfile"]


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.name)
def test_every_builder_can_build_it(path):
    text = path.read_text()
    assert not re.search(r"#\s*syntax=|<<|--link|--mount|--chmod", text)
    assert {line for line in instructions(path) if line.startswith("FROM")} == {
        "FROM ${PYTHON_IMAGE} AS requirements",
        "FROM ${PYTHON_IMAGE}",
    }
    assert "ARG PYTHON_IMAGE=python:3.11-slim-bookworm" in text


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.name)
def test_it_installs_what_is_pinned_compiles_nothing_and_runs_as_nobody(path):
    text = path.read_text()
    assert "--require-hashes" in text
    assert "--only-binary :all:" in text
    assert not re.search(r"\b(gcc|build-essential|apt-get|curl)\b", text)
    assert [line for line in instructions(path) if line.startswith("USER")] == ["USER antenna"]


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.name)
def test_a_change_of_code_leaves_the_requirements_cached(path):
    lines = instructions(path)
    install = next(index for index, line in enumerate(lines) if "pip install" in line)
    before = [line for line in lines[:install] if line.startswith("COPY")]
    assert len(before) == 1
    assert before[0].startswith("COPY requirements/")


def test_what_is_copied_is_sent_to_the_builder_and_nothing_secret_is():
    sent = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    copied = {
        word.split("/")[0]
        for path in DOCKERFILES
        for line in instructions(path)
        if line.startswith("COPY") and "--from" not in line
        for word in line.split()[1:-1]
    }
    assert copied == sent
    assert (ROOT / ".dockerignore").read_text().splitlines()[1] == "*"


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_a_start_script_becomes_its_process(script):
    lines = [line for line in script.read_text().splitlines() if not line.startswith("#")]
    assert script.stat().st_mode & 0o111
    assert lines[-1].startswith("exec ")
    # A substitution that fails would still start Celery.
    assert not re.search(r"\$\(|`", "\n".join(lines))
    if script.name != "setup":
        assert len(lines) == 1
    else:
        assert lines[0] == "set -e"
    assert subprocess.run(["/bin/sh", "-n", str(script)], check=False).returncode == 0


def test_there_is_a_script_for_each_kind_of_process():
    assert [script.name for script in SCRIPTS] == ["beat", "flower", "setup", "web", "worker"]


def test_the_processing_service_runs_with_what_its_image_holds(tmp_path):
    for line in instructions(ROOT / "compose/processing.Dockerfile"):
        if not line.startswith("COPY") or "--from" in line or "requirements/" in line:
            continue
        *sources, target = line.split()[1:]
        for source in sources:
            place = tmp_path / target / source.split("/")[-1] if target.endswith("/") else tmp_path / target
            place.parent.mkdir(parents=True, exist_ok=True)
            (shutil.copytree if (ROOT / source).is_dir() else shutil.copy)(ROOT / source, place)
    done = subprocess.run(
        [sys.executable, "-m", "processing_service", "--help"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
