"""`make demo BROKER=containers`: what it prints, and what it leaves; `docker` is a script that notes its calls."""

import os
import signal
import tempfile
from pathlib import Path

import pytest
import yaml

from ami.topology.topology import load
from tests.support import forked_python
from tests.support.place import until

pytestmark = pytest.mark.processes

#: It prints as much as Compose does, and ends as the file named after the command says.
DOCKER = """#!/bin/bash
here=$(dirname "$0")
while [[ $1 == compose || $1 == -* ]]; do
  case $1 in --project-directory|--env-file|-p|-f|--profile) shift 2 ;; *) shift ;; esac
done
echo "$*" >> "$here/calls"
seq -f ' Container antenna-demo-%g  Waiting' 60 >&2
case $1 in
  run) echo 'pass  the job succeeded' ;;
  cp) [[ -e $here/no-report ]] && exit 1; mkdir "$3" && touch "$3/index.html" ;;
esac
[[ -e $here/$1-hangs ]] && exec sleep 60
exit "$(cat "$here/$1-code" 2>/dev/null || echo 0)"
"""


@pytest.fixture
def engine(tmp_path: Path) -> Path:
    """The folder of `docker`."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "docker").write_text(DOCKER)
    (folder / "docker").chmod(0o755)
    return folder


def arguments(engine: Path) -> tuple[list[str], dict[str, str]]:
    folder = engine.parent / "demo"
    environment = {"PATH": f"{engine}:{os.environ['PATH']}", "HOME": os.environ.get("HOME", "/")}
    return ["-m", "demo.containers", "--folder", str(folder)], environment


def demo(engine: Path, code: int = 0) -> tuple[list[str], str]:
    """Run it; return the lines it printed, and what it said on stderr."""
    argv, environment = arguments(engine)
    done = forked_python.run(argv, env=environment)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout.splitlines(), done.stderr


def calls(engine: Path) -> list[str]:
    """The first word of every command."""
    return [line.split()[0] for line in (engine / "calls").read_text().splitlines()]


def test_output_is_short_and_ends_with_an_existing_report(engine: Path):
    lines, errors = demo(engine)
    report = engine.parent / "demo" / "report" / "index.html"
    assert (lines[-1], report.exists(), errors) == (f"  Report: {report}", True, "")
    assert len(lines) < 10, lines
    assert "pass  the job succeeded" in lines
    assert calls(engine) == ["build", "up", "run", "cp", "down"]


def test_output_of_compose_is_in_the_log(engine: Path):
    lines, _ = demo(engine)
    assert "Waiting" not in "\n".join(lines)
    (log,) = [line for line in lines if "compose.log" in line]
    path = engine.parent / "demo" / "compose.log"
    assert str(path) in log
    assert path.read_text().count("Waiting") == 5 * 60


def test_every_worker_of_the_table_gets_what_the_demo_needs(engine: Path):
    demo(engine)
    workers = yaml.safe_load((engine.parent / "demo" / "workers.yml").read_text())["services"]
    assert set(workers) == {row.service for row in load({}).workloads}
    assert {worker["environment"]["ANTENNA_EXTRA_TASKS"] for worker in workers.values()} == {"demo.tasks"}


@pytest.mark.parametrize("step", ["build", "up"])
def test_failed_step_shows_the_end_of_its_output(engine: Path, step: str):
    (engine / f"{step}-code").write_text("17")
    lines, errors = demo(engine, code=1)
    assert "ended with exit code 17" in errors
    assert "antenna-demo-60  Waiting" in errors
    assert len(errors.splitlines()) < 20
    assert "Report" not in "\n".join(lines)
    assert calls(engine)[-1] == "down"


def test_exit_code_is_the_main_jobs(engine: Path):
    (engine / "run-code").write_text("3")
    lines, _ = demo(engine, code=3)
    assert lines[-1].startswith("  Report: ")


def test_missing_report_is_said_and_an_old_one_not_shown(engine: Path):
    demo(engine)
    (engine / "no-report").touch()
    lines, _ = demo(engine)
    assert any(line.startswith("  There is no report: ") for line in lines)
    assert "Report:" not in lines[-1]


def test_failed_removal_says_what_to_do(engine: Path):
    (engine / "down-code").write_text("1")
    lines, _ = demo(engine)
    assert any("docker compose -p antenna-demo down --volumes" in line for line in lines)


@pytest.mark.parametrize("step", ["up", "run"])
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_interrupted_demo_removes_its_containers(engine: Path, step: str, number: int, code: int):
    (engine / f"{step}-hangs").touch()
    argv, environment = arguments(engine)
    with tempfile.TemporaryFile() as output:
        process = forked_python.start(argv, env=environment, stdout=output, stderr=output)
        until(lambda: (engine / "calls").exists() and calls(engine)[-1] == step, 30, "it has begun")
        os.killpg(process.pid, number)
        assert process.wait(30) == code
        output.seek(0)
        assert b"Traceback" not in output.read()
    assert calls(engine)[-1] == "down"
