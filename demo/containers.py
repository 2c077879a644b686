"""``python -m demo.containers``: runs the main job on a deployment in its own containers, and copies the report."""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import yaml
from rich.console import Console

from ami.topology.topology import load
from demo import captures, report_archive
from demo.compose_commands import STOP_SECONDS, ComposeCommands, ComposeFailed
from demo.environment import COUNTS_SECONDS
from provision import dotenv, env_files

ROOT = Path(__file__).resolve().parent.parent
FILES = ("docker-compose.yml", "docker-compose.worker.yml", "compose/demo.yml")
PROJECT = "antenna-demo"
INTERRUPTED = 130

#: Concurrency for a machine with two processors.
SMALL = {"INGEST": 2, "HOUSEKEEPING": 1, "INTERACTIVE": 2, "FALLBACK": 1}


def main(argv: Sequence[str] | None = None) -> int:
    """Start the containers, run the main job, copy the report, remove everything; return the main job's exit code."""
    options = _parser().parse_args(argv)
    if shutil.which("docker") is None:
        print("The demo in containers needs Docker and Compose v2; `make demo` needs neither.", file=sys.stderr)
        return 1
    # Also if a shell started this with interrupts ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    folder = options.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    report_archive.set_aside(folder)
    shutil.rmtree(folder / "report", ignore_errors=True)
    (log := folder / "compose.log").unlink(missing_ok=True)
    console = Console(width=None if sys.stdout.isatty() else 140)
    compose = ComposeCommands([*_compose(folder), "-f", str(_workers(folder))], log, console)
    for name in set(os.environ) - set(dotenv.engine_environment(os.environ)):
        del os.environ[name]
    report, code = folder / "report" / "index.html", _run(compose, options, folder)
    if report.is_file():
        compose.say(f"Report: {report}")
    return code


def _run(compose: ComposeCommands, options: argparse.Namespace, folder: Path) -> int:
    try:
        _start(compose)
        return _main_job(compose, options, folder)
    except ComposeFailed as error:
        print(f"The demo failed: {error}", file=sys.stderr, flush=True)
        return 1
    except KeyboardInterrupt:
        compose.say("Interrupted.")
        return INTERRUPTED
    finally:
        _remove(compose)


def _start(compose: ComposeCommands) -> None:
    compose.console.print("[bold]Containers[/bold]")
    compose.say(f"building images (output of docker: {compose.log})")
    seconds = compose.step("building images", "--profile", "demo", "build")
    compose.say(f"images built after {seconds:.0f} s; starting containers")
    seconds = compose.step("starting containers", "up", "--detach", "--wait")
    compose.say(f"all containers healthy after {seconds:.0f} s")


def _remove(compose: ComposeCommands) -> None:
    """Remove the containers and volumes; a second Ctrl-C does not stop that."""
    before = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        compose.say("removing containers and volumes")
        down = ["--profile", "*", "down", "--volumes", "--remove-orphans", "--timeout", str(STOP_SECONDS)]
        compose.step("removing containers and volumes", *down, interruptible=False)
    except ComposeFailed as error:
        compose.say(f"{error}\nRemove them with: docker compose -p {PROJECT} down --volumes")
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m demo.containers", description=__doc__)
    parser.add_argument(
        "--folder", type=Path, default=Path(".demo/containers"), help="output folder; default: %(default)s"
    )
    captures.add_options(parser)
    return parser


def _compose(folder: Path) -> list[str]:
    """Return the prefix of every compose command: the files, the demo's own project name and its own env files."""
    env, services = folder / "env", folder / "env.services"
    for path in (env, services):
        path.unlink(missing_ok=True)
    env_files.write(env, changes=dotenv.LOCAL | dotenv.published_anywhere(env_files.EXAMPLE.read_text()))
    more = {f"ANTENNA_{key}_CONCURRENCY": str(size) for key, size in SMALL.items()}
    more |= {"ANTENNA_COUNTS_SECONDS": str(COUNTS_SECONDS)}
    more |= {"ANTENNA_ENV_FILE": str(env), "ANTENNA_SERVICES_ENV_FILE": str(services)}
    with env.open("a") as file:
        file.writelines(f"{name}={dotenv.quoted(value)}\n" for name, value in more.items())
    files = (part for name in FILES for part in ("-f", str(ROOT / name)))
    return ["docker", "compose", "--project-directory", str(ROOT), "--env-file", str(env), "-p", PROJECT, *files]


def _workers(folder: Path) -> Path:
    """Write a compose file that gives every worker of the table what the demo's file gives to web; return its path."""
    shared = yaml.safe_load((ROOT / FILES[-1]).read_text())["services"]["web"]
    file = folder / "workers.yml"
    file.write_text(yaml.safe_dump({"services": {row.service: shared for row in load({}).workloads}}))
    return file


def _main_job(compose: ComposeCommands, options: argparse.Namespace, folder: Path) -> int:
    own = ["--frames", str(options.frames), "--seed", str(options.seed)]
    mount: list[str] = []
    if options.captures:
        mount, own = ["--volume", f"{options.captures.resolve()}:/captures:ro"], ["--captures", "/captures"]
    terminal = [] if sys.stdout.isatty() else ["--no-TTY"]
    code = compose.attached("run", "--rm", *terminal, *mount, "demo", *own)
    if code == INTERRUPTED:  # On a terminal, Ctrl-C reaches only the container.
        raise KeyboardInterrupt
    try:
        compose.step("copying the report", "cp", "web:/data/demo/report", str(folder / "report"))
    except ComposeFailed as error:
        compose.say(f"There is no report: {error}")
    return code


if __name__ == "__main__":
    sys.exit(main())
