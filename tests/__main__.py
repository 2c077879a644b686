"""``python -m tests``: the suite, part by part, with what each took; ``make test`` and ``make test-fast`` call it."""

import argparse
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support import migrated_database, services
from tests.support.locks import locked
from tests.support.memory_folder import on_disk, temporary_files_in_memory

ROOT = Path(__file__).resolve().parents[1]
LOGS = ROOT / ".test-logs"
#: Held while the first part runs, for which services may already start.
FIRST = LOGS / "first.lock"
#: Held while tests run in containers: what measures time waits for it.
BUSY = LOGS / "containers.lock"
#: A line for each part: its name, its seconds, its CPU-seconds, its result.
TIMES = LOGS / "times"
PYTEST = (sys.executable, "-m", "pytest", "--durations=15")
HEAD = f"{'':<18}{'seconds':>9}{'CPU-seconds':>13}\n"
#: The longest first: two workers take files in this order, and what is short fills the end.
PARALLEL = ("--dist", "loadfile", "--no-loadscope-reorder")


@dataclass(frozen=True)
class Part:
    """One call of pytest."""

    name: str
    arguments: Sequence[str]
    parallel: bool = True
    #: Processes more than asked for: where tests wait for workers, two processes leave a third of two cores idle.
    more: int = 0


WITHOUT_SERVICES = Part(
    "without services",
    ("tests/integration/provision", "tests/integration/processing_service", "tests/unit", "--part", "fast,processes"),
)
FAST = Part("fast", ("tests/unit", "--part", "fast"))
#: The start, the routes, the main job and Celery's suite; the rest of the folder is for `make smoke`.
SMOKE = ROOT / "tests/smoke"
IN_CONTAINERS = ("celery_suite", "test_deployment.py", "test_main_job.py")
CONTAINERS = Part(
    "in containers",
    (*(f"tests/smoke/{name}" for name in IN_CONTAINERS), "--part", "containers", "--timeout=900"),
    parallel=False,
)
SERVICES = Part("on services", ("tests/acceptance", "tests/integration", "tests/unit", "--part", "services"), more=1)
ALONE = Part("alone", ("tests/acceptance", "--part", "alone"), parallel=False)


def main(argv: Sequence[str]) -> int:
    """Run what is asked for; return 0 when all passed."""
    parser = argparse.ArgumentParser(prog="python -m tests", description=__doc__)
    parser.add_argument("what", nargs="?", default="all", choices=["all", "fast", "services"])
    parser.add_argument("--workers", type=int, default=2, help="processes that run tests at the same time")
    options = parser.parse_args(argv)
    LOGS.mkdir(exist_ok=True)
    keep_bytecode()
    os.environ.setdefault(migrated_database.VARIABLE, str(migrated_database.kept_below(LOGS / "migrated")))
    with temporary_files_in_memory() as folder:
        code = run_parts(options.what, options.workers)
        if code:
            folder.keep()
    return code


def run_parts(what: str, workers: int) -> int:
    """Run the parts that are asked for; return 0 when all passed."""
    if what == "services":
        return on_services(workers)
    TIMES.write_text(HEAD)
    began = time.monotonic()
    code = run(FAST, workers) if what == "fast" else run_all(workers)
    if what == "all":
        note("together", began, code, resource.getrusage(resource.RUSAGE_CHILDREN))
    print(TIMES.read_text(), flush=True)
    return code


def run_all(workers: int) -> int:
    """Run the parts beside and after each other; return 0 when all passed."""
    with beside(CONTAINERS) as containers:
        with locked(FIRST):
            served = begin_services(workers)
            try:
                plain = run(WITHOUT_SERVICES, workers)
            except BaseException:
                served.terminate()
                raise
        codes = (plain, served.wait(), containers.wait())
    print((LOGS / "containers.log").read_text(errors="replace"), flush=True)
    left = sorted(path.name for path in SMOKE.glob("test_*.py") if path.name not in IN_CONTAINERS)
    print(f"Left to `make smoke`: {', '.join(left)} of tests/smoke.", flush=True)
    return 1 if any(codes) else 0


def keep_bytecode() -> None:
    """Let the many processes of a run share compiled code, whatever the environment says, outside the tree."""
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ["PYTHONPYCACHEPREFIX"] = str(LOGS / "bytecode")


def begin_services(workers: int) -> "subprocess.Popen[bytes]":
    """Start the services, and on them this program once more, while the first part runs."""
    again = (sys.executable, "-m", "tests", "services", "--workers", str(workers))
    return subprocess.Popen((sys.executable, "-m", "provision", "run", "--private", "--", *again), cwd=ROOT)


def on_services(workers: int) -> int:
    """After the first part run what needs services; then, when no container runs any more, what must be alone."""
    with locked(FIRST):
        code = run(SERVICES, workers)
    with locked(BUSY):
        return run(ALONE, workers) or code


def run(part: Part, workers: int) -> int:
    """Run one part, note its time, and return pytest's exit code; no test at all is a failure."""
    began = time.monotonic()
    parallel = ("-n", str(workers + part.more), *PARALLEL) if part.parallel else ()
    environment = dict(os.environ)
    if part is ALONE:
        environment = on_disk(environment)
    if part in (FAST, WITHOUT_SERVICES):
        environment = {name: value for name, value in environment.items() if name not in services.URLS}
    with subprocess.Popen([*PYTEST, *part.arguments, *parallel], cwd=ROOT, env=environment) as process:
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    note(part.name, began, process.returncode, usage)
    return process.returncode


@contextmanager
def beside(part: Part) -> Iterator["subprocess.Popen[bytes]"]:
    """Run a part in the background, its output in a file of its name; end it when the block ends early."""
    began = time.monotonic()
    with locked(BUSY) as lock, (LOGS / "containers.log").open("wb") as output:
        arguments = [*PYTEST, *part.arguments]
        environment = on_disk(dict(os.environ))  # The container engine may see another memory than these tests.
        process = subprocess.Popen(arguments, cwd=ROOT, env=environment, stdout=output, stderr=output, pass_fds=[lock])
    waiting = threading.Thread(target=lambda: note(part.name, began, process.wait()))
    waiting.start()
    try:
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)  # Its fixtures take the containers down.
        waiting.join()


def note(name: str, began: float, code: int, usage: resource.struct_rusage | None = None) -> None:
    """Add a line to the table of times; what containers compute is not seen here."""
    spent = f"{usage.ru_utime + usage.ru_stime:.0f}" if usage else "-"
    with TIMES.open("a") as times:
        result = "passed" if code == 0 else f"FAILED (exit {code})"
        times.write(f"{name:<18}{time.monotonic() - began:>9.0f}{spent:>13}  {result}\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
