"""``python -m demo.containers``: runs the main job on a deployment in its own containers, and copies the report."""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from demo import captures
from provision import dotenv, env_files

ROOT = Path(__file__).resolve().parent.parent
FILES = ("docker-compose.yml", "docker-compose.worker.yml", "compose/demo.yml")
PROJECT = "antenna-demo"
STOP_SECONDS = 20

#: Concurrency for a machine with two processors.
SMALL = {"INGEST": 2, "HOUSEKEEPING": 1, "INTERACTIVE": 2, "FALLBACK": 1}


def main(argv: Sequence[str] | None = None) -> int:
    """Start the containers, run the main job, copy the report, remove everything; return the main job's exit code."""
    options = _parser().parse_args(argv)
    if shutil.which("docker") is None:
        print("The demo in containers needs Docker and Compose v2; `make demo` needs neither.", file=sys.stderr)
        return 1
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    folder = options.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    compose = _compose(folder)
    for name in set(os.environ) - set(dotenv.engine_environment(os.environ)):
        del os.environ[name]
    try:
        subprocess.run([*compose, "--profile", "demo", "build"], check=True)  # noqa: S603 - argv is ours
        subprocess.run([*compose, "up", "--detach", "--wait"], check=True)  # noqa: S603
        return _main_job(compose, options, folder)
    except subprocess.CalledProcessError as error:
        print(f"The demo failed: docker ended with {error.returncode}.", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    finally:
        down = ["--profile", "*", "down", "--volumes", "--timeout", str(STOP_SECONDS)]
        subprocess.run([*compose, *down], check=False)  # noqa: S603


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
    more |= {"ANTENNA_ENV_FILE": str(env), "ANTENNA_SERVICES_ENV_FILE": str(services)}
    with env.open("a") as file:
        file.writelines(f"{name}={dotenv.quoted(value)}\n" for name, value in more.items())
    files = (part for name in FILES for part in ("-f", str(ROOT / name)))
    return ["docker", "compose", "--project-directory", str(ROOT), "--env-file", str(env), "-p", PROJECT, *files]


def _main_job(compose: list[str], options: argparse.Namespace, folder: Path) -> int:
    own = ["--frames", str(options.frames), "--seed", str(options.seed)]
    mount: list[str] = []
    if options.captures:
        mount, own = ["--volume", f"{options.captures.resolve()}:/captures:ro"], ["--captures", "/captures"]
    terminal = [] if sys.stdout.isatty() else ["--no-TTY"]
    ran = subprocess.run([*compose, "run", "--rm", *terminal, *mount, "demo", *own], check=False)  # noqa: S603
    report = folder / "report"
    shutil.rmtree(report, ignore_errors=True)
    subprocess.run([*compose, "cp", "web:/data/demo/report", str(report)], check=False)  # noqa: S603
    print(f"Report: {report / 'index.html'}")
    return ran.returncode


if __name__ == "__main__":
    sys.exit(main())
