"""The images: any builder can build them, without compiler or root; start scripts exec their process."""

import re
import shutil
import subprocess
import sys

import pytest

from tests.support.place import ROOT

DOCKERFILE = ROOT / "compose/Dockerfile"
INSTALL = ROOT / "compose/build/install"
SCRIPTS = sorted((ROOT / "compose/start").iterdir())
TARGETS = ("objects", "processing", "antenna")


def instructions() -> list[str]:
    text = DOCKERFILE.read_text().replace("\\\n", " ")
    return [line for line in text.splitlines() if line and not line.startswith("#")]


def stages() -> dict[str, list[str]]:
    """Each stage's instructions in order, by stage name."""
    found: dict[str, list[str]] = {}
    for line in instructions():
        if line.startswith("FROM"):
            current = found.setdefault(line.split(" AS ")[1], [])
        elif found:
            current.append(line)
    return found


def test_dockerfile_has_one_target_per_image():
    requirements = [f"{target}-requirements" for target in reversed(TARGETS)]
    assert list(stages()) == [*requirements, "base", *TARGETS, "demo", "default"]
    assert instructions()[-1] == "FROM antenna AS default", "what a build without a target makes"


def test_dockerfile_uses_no_buildkit_features():
    assert not re.search(r"#\s*syntax=|<<|--link|--mount|--chmod", DOCKERFILE.read_text())
    froms = {line.split()[1] for line in instructions() if line.startswith("FROM")}
    assert froms == {"${PYTHON_IMAGE}", "base", "antenna"}
    assert instructions()[0] == "ARG PYTHON_IMAGE=python:3.11-slim-bookworm"


@pytest.mark.parametrize("target", TARGETS)
def test_image_installs_pinned_wheels_and_runs_unprivileged(target: str):
    copied, installed = stages()[f"{target}-requirements"]
    name = {"antenna": "production"}.get(target, target)
    assert copied == f"COPY compose/build/install requirements/{name}.txt /build/", "code does not change this layer"
    assert installed == f"RUN /build/install /opt/{target} /build/{name}.txt"
    assert "--hash=sha256:" in (ROOT / f"requirements/{name}.txt").read_text()
    # A number: Kubernetes cannot verify that a user name is not root.
    assert [line for line in stages()[target] if line.startswith("USER")] == ["USER 10001:10001"]


@pytest.mark.processes
def test_installer_requires_hashes_and_wheels():
    text = INSTALL.read_text()
    assert "--require-hashes" in text
    assert "--only-binary :all:" in text
    assert not re.search(r"\b(gcc|build-essential|apt-get|curl)\b", text + DOCKERFILE.read_text())
    assert subprocess.run(["/bin/sh", "-n", INSTALL], check=False).returncode == 0


def test_build_context_has_the_copied_files_and_no_secrets():
    ignore = (ROOT / ".dockerignore").read_text().splitlines()
    sent = {line[1:] for line in ignore if line.startswith("!")}
    copied = {
        word.split("/")[0]
        for line in instructions()
        if line.startswith("COPY") and "--from" not in line
        for word in line.split()[1:-1]
        if not word.startswith("--")
    }
    assert copied == sent
    assert ignore[1] == "*"
    assert "compose/secrets" in ignore


@pytest.mark.processes
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_start_script_execs_its_process(script):
    lines = [line for line in script.read_text().splitlines() if not line.startswith("#")]
    assert script.stat().st_mode & 0o111
    assert subprocess.run(["/bin/sh", "-n", str(script)], check=False).returncode == 0
    if script.name == "fresh":
        return
    assert lines[-1].startswith("exec ")
    if script.name != "objects":
        # A substitution that fails would still start Celery.
        assert not re.search(r"\$\(|`", "\n".join(lines))
        assert len(lines) == 1
    else:
        assert lines[0].startswith("set -e")


def test_each_kind_of_process_has_a_start_script():
    kinds = ["beat", "definitions", "flower", "fresh", "objects", "setup", "web", "worker"]
    assert [script.name for script in SCRIPTS] == kinds


@pytest.mark.processes
def test_processing_service_runs_with_the_files_of_its_image(tmp_path):
    for line in stages()["processing"]:
        if not line.startswith("COPY") or "--from" in line:
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
