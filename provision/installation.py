"""Installs a set of pinned packages into `.venv`: `python3.11 -m provision.installation run|test`.

It runs before anything is installed, so it imports the standard library only. uv installs them. It reads no pip.conf,
so it is told pip's indexes. pip installs the same files where uv cannot. A stamp per set has a digest of its files and
its packages' names; a file that exists during an installation says that the next one must repair.
"""

from __future__ import annotations

import ast
import fcntl
import hashlib
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import distributions
from pathlib import Path

#: The files of each set. `local` contains the other two.
SETS = {"run": ("base", "processing"), "test": ("local",)}
TICK_SECONDS = 10.0
#: pip's option -> uv's variable, and what separates several values there.
TRANSLATED = {
    "index-url": ("UV_DEFAULT_INDEX", ""),
    "extra-index-url": ("UV_INDEX", " "),
    "find-links": ("UV_FIND_LINKS", ","),
    "trusted-host": ("UV_INSECURE_HOST", " "),
    "no-index": ("UV_NO_INDEX", ""),
    "cert": ("SSL_CERT_FILE", ""),
    "proxy": ("ALL_PROXY", ""),
}


class Failed(Exception):
    """A command failed; the message is the end of its output."""


def uv_variables(listing: str, environ: Mapping[str, str]) -> dict[str, str]:
    """What `pip config list` printed, as variables of uv; those in `environ` win."""
    found: dict[str, dict[str, str]] = {}
    for section, option, value in re.findall(r"^(\S+?)\.([a-z-]+)=(.+)$", listing, re.M):
        found.setdefault(section, {})[option] = str(ast.literal_eval(value))
    options = {**found.get("global", {}), **found.get("install", {}), **found.get(":env:", {})}
    variables = {"UV_INDEX_STRATEGY": "unsafe-best-match"}  # As pip: every index counts. The hashes decide.
    for option, (variable, separator) in TRANSLATED.items():
        if value := options.get(option, "").strip():
            variables[variable] = separator.join(value.split()) if separator else value
    return {name: value for name, value in variables.items() if name not in environ}


def pins(text: str) -> dict[str, str]:
    """The version of each package that a requirements file pins."""
    return {_plain(name): version for name, version in re.findall(r"^([\w.-]+)==([^\s;]+)", text, re.M)}


@dataclass
class Installation:
    """The environment `.venv` below `root`; `say` prints a line."""

    root: Path

    @property
    def folder(self) -> Path:
        return self.root / ".venv"

    @property
    def python(self) -> str:
        return str(self.folder / "bin" / "python")

    @property
    def unfinished(self) -> Path:
        """Exists while packages are installed."""
        return self.folder / "unfinished"

    def stamp(self, name: str) -> Path:
        return self.folder / f"installed-{name}"

    def install(self, name: str) -> None:
        """Bring a set up to date; one process at a time. Raises `Failed`."""
        self.folder.mkdir(exist_ok=True)
        with (self.folder / "lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                say("waiting for another installation into .venv")
                fcntl.flock(lock, fcntl.LOCK_EX)
            digest, wanted = self._wanted(name)
            stamp = self.stamp(name)
            before = stamp.read_text().split() if stamp.exists() else [""]
            if before[0] != digest or self.unfinished.exists():
                self._update(name, wanted, set(before[1:]))
                stamp.write_text("\n".join([digest, *sorted(wanted)]))
                self.unfinished.unlink(missing_ok=True)
            stamp.touch()

    def _wanted(self, name: str) -> tuple[str, dict[str, str]]:
        texts = [file.read_text() for file in self._files(name)]
        digest = hashlib.sha256("\n".join([sys.version, *texts]).encode()).hexdigest()
        return digest, {package: version for text in texts for package, version in pins(text).items()}

    def _files(self, name: str) -> list[Path]:
        return [self.root / "requirements" / f"{file}.txt" for file in SETS[name]]

    def _update(self, name: str, wanted: Mapping[str, str], before: set[str]) -> None:
        if not self._has_pip():
            say("making .venv")
            for link in (self.folder / "bin").glob("python*"):  # venv keeps them, though their Python is gone.
                link.unlink()
            _run([sys.executable, "-m", "venv", str(self.folder)])
        repairs = self.unfinished.exists()
        found = distributions(path=[str(self._packages())])
        present = {_plain(each.name): each.version for each in found if each.name}  # None: half installed.
        missing = [package for package in wanted if repairs or present.get(package) != wanted[package]]
        self.unfinished.touch()
        if missing:
            self._install(name, missing, repairs)
        if leftover := before - set(wanted) - self._needed_elsewhere(name):
            say(f"removing {', '.join(sorted(leftover))}: no longer required")
            _run([self.python, "-m", "pip", "uninstall", "--yes", "--quiet", *sorted(leftover)])

    def _install(self, name: str, missing: Sequence[str], repairs: bool) -> None:
        why = " again, since an installation was interrupted" if repairs else ""
        say(f"installing {len(missing)} packages into .venv{why}")
        began = time.monotonic()
        files = [part for file in self._files(name) for part in ("--requirement", str(file))]
        try:
            uv = self._uv()
            argv = [uv, "pip", "install", "--quiet", "--python", self.python, "--require-hashes", *files]
            listing = _run([self.python, "-m", "pip", "config", "list"], {"PIP_QUIET": "0"})
            more = [*(["--reinstall"] if repairs else []), *([] if _has_cache(uv) else ["--no-cache"])]
            _run([*argv, *more], uv_variables(listing, os.environ))
            tool = "uv"
        except (Failed, OSError) as error:
            say(f"pip installs them, since uv could not: {error}")
            argv = [self.python, "-m", "pip", "install", "--quiet", "--require-hashes", *files]
            _run([*argv, *(["--force-reinstall"] if repairs else [])])
            tool = "pip"
        say(f"{len(missing)} packages installed with {tool} in {time.monotonic() - began:.0f} s")

    def _uv(self) -> str:
        """The path of the pinned uv, installed if needed."""
        file = self.root / "requirements" / "uv.txt"
        uv = self.folder / "bin" / "uv"
        try:
            version = _run([str(uv), "--version"]).split()[1]
        except (Failed, OSError, IndexError):
            version = ""
        if version != pins(file.read_text())["uv"]:
            argv = [self.python, "-m", "pip", "install", "--quiet", "--force-reinstall", "--require-hashes"]
            _run([*argv, "--retries", "1", "--requirement", str(file)])
        return str(uv)

    def _has_pip(self) -> bool:
        try:
            return bool(_run([self.python, "-m", "pip", "--version"]))
        except (Failed, OSError):
            return False

    def _packages(self) -> Path:
        return self.folder / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"

    def _needed_elsewhere(self, name: str) -> set[str]:
        others = [other for other in SETS if other != name and self.stamp(other).exists()]
        return {package for other in others for package in self._wanted(other)[1]}


def say(line: str) -> None:
    print(line, flush=True)


def _has_cache(uv: str) -> bool:
    """Whether uv can write to its cache: a home folder may be read-only."""
    folder = Path(_run([uv, "cache", "dir"]).splitlines()[-1])  # After warnings.
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return False
    return os.access(folder, os.W_OK)


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _run(argv: Sequence[str], variables: Mapping[str, str] | None = None) -> str:
    """Run a command, saying every ten seconds that it still runs; return its output. Raises `Failed`, OSError."""
    began = time.monotonic()
    with subprocess.Popen(  # noqa: S603
        argv,
        env={**os.environ, **(variables or {})},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as process:
        while True:
            try:
                output, _ = process.communicate(timeout=TICK_SECONDS)
                break
            except subprocess.TimeoutExpired:
                say(f"still at it after {time.monotonic() - began:.0f} s")
    if process.returncode:
        raise Failed(_last(output.splitlines()) or f"{Path(argv[0]).name} ended with exit code {process.returncode}")
    return output


def _last(lines: Iterable[str]) -> str:
    said = [line.strip() for line in lines if line.strip() and not line.startswith(("WARNING", "[notice]"))]
    return " ".join(said[-3:])


def main(argv: Sequence[str]) -> int:
    """Install the set that `argv` names; 1 if it could not be installed, 130 after Ctrl-C."""
    if list(argv) not in [[name] for name in SETS]:
        say(f"usage: python -m provision.installation {'|'.join(SETS)}")
        return 2
    try:
        Installation(Path(__file__).resolve().parents[1]).install(argv[0])
    except (Failed, OSError) as error:
        print(f"The packages could not be installed: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        say("Interrupted; the next call continues.")
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
