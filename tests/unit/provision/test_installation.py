"""The packages of `make demo` and of the tests: what is installed, repaired, removed, and by which tool."""

import base64
import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from provision import installation
from provision.installation import Failed, Installation, pins, uv_variables
from tests.support.place import ROOT

UV = Path(sys.prefix) / "bin/uv"

LISTING = """\
:env:.find-links='/srv/wheels /srv/more'
global.cert='/etc/ca.pem'
global.extra-index-url='https://one.example/simple\\nhttps://two.example/simple'
global.find-links='/overridden'
global.index-url='https://user:secret@zero.example/simple'
list.format='columns'
"""


def test_uv_is_given_the_indexes_that_pip_knows():
    assert uv_variables(LISTING, {"SSL_CERT_FILE": "/mine.pem"}) == {
        "UV_DEFAULT_INDEX": "https://user:secret@zero.example/simple",
        "UV_FIND_LINKS": "/srv/wheels,/srv/more",
        "UV_INDEX": "https://one.example/simple https://two.example/simple",
        "UV_INDEX_STRATEGY": "unsafe-best-match",
    }
    assert uv_variables("", {}) == {"UV_INDEX_STRATEGY": "unsafe-best-match"}


def test_test_set_contains_the_run_set():
    base, processing, local = (
        pins((ROOT / f"requirements/{name}.txt").read_text()) for name in ("base", "processing", "local")
    )
    assert (base | processing).items() <= local.items()
    assert processing.items() & base.items() == {(n, v) for n, v in processing.items() if n in base}


class Shop:
    """A checkout with three small packages, `uv` and an environment of its own, whose Python is gone: the first
    installation makes it again.
    """

    def __init__(self, root: Path) -> None:
        self.root, self.installation = root, Installation(root)
        (root / "requirements").mkdir()
        (root / "wheels").mkdir()
        self.require("uv", "uv", uv_version())
        (root / ".venv/bin").mkdir(parents=True)
        for name in ("python", "python3", f"python3.{sys.version_info.minor}"):
            (root / ".venv/bin" / name).symlink_to("/nowhere/python")
        (root / ".venv/bin/uv").symlink_to(UV)

    def require(self, file: str, *pairs: str) -> None:
        """Pin packages: a name, a version, a name, ..."""
        lines = [
            f"{name}=={version} --hash=sha256:{self.wheel(name, version) if name != 'uv' else '0' * 64}"
            for name, version in zip(pairs[::2], pairs[1::2], strict=True)
        ]
        (self.root / f"requirements/{file}.txt").write_text("\n".join(lines) + "\n")

    def wheel(self, name: str, version: str) -> str:
        """Make a wheel with one module, and return its hash."""
        info, path = f"{name}-{version}.dist-info", self.root / f"wheels/{name}-{version}-py3-none-any.whl"
        files = {
            f"{name}.py": f"version = {version!r}\n",
            f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
            f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        }
        record = [f"{file},sha256={_digest(text)},{len(text)}" for file, text in files.items()]
        files[f"{info}/RECORD"] = "\n".join([*record, f"{info}/RECORD,,"]) + "\n"
        with zipfile.ZipFile(path, "w") as archive:
            for file, text in files.items():
                archive.writestr(zipfile.ZipInfo(file), text)
        return hashlib.sha256(path.read_bytes()).hexdigest()

    def found(self) -> dict[str, str]:
        folder = next((self.root / ".venv/lib").glob("python*/site-packages"))
        return {path.stem: path.read_text().split("'")[1] for path in sorted(folder.glob("shop*.py"))}


def _digest(text: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip("=")


def uv_version() -> str:
    return subprocess.run([UV, "--version"], capture_output=True, text=True, check=True).stdout.split()[1]


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment costs seconds: one for all tests of this file."""
    root = tmp_path_factory.mktemp("a checkout")
    Shop(root)
    return root


@pytest.fixture
def shop(environment: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shop:
    made = Shop.__new__(Shop)
    made.root, made.installation = environment, Installation(environment)
    for stamp in (environment / ".venv").glob("installed-*"):
        stamp.unlink()
    for left in (environment / ".venv/lib").glob("python*/site-packages/shop*"):
        shutil.rmtree(left) if left.is_dir() else left.unlink()
    for variable, value in {
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(tmp_path / "links"),
        "UV_CACHE_DIR": str(tmp_path / "cache"),
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_QUIET": "1",
    }.items():
        monkeypatch.setenv(variable, value)
    for variable in ("UV_FIND_LINKS", "UV_INDEX", "UV_DEFAULT_INDEX", "PIP_EXTRA_INDEX_URL", "PIP_INDEX_URL"):
        monkeypatch.delenv(variable, raising=False)
    (tmp_path / "links").symlink_to(environment / "wheels")
    made.require("uv", "uv", uv_version())
    made.require("base", "shopone", "1.0")
    made.require("processing", "shoptwo", "1.0")
    made.require("local", "shopone", "1.0", "shoptwo", "1.0", "shopthree", "1.0")
    return made


pytestmark = pytest.mark.skipif(not UV.exists(), reason="no uv: `make setup` installs it")


@pytest.mark.processes
def test_second_set_only_adds_and_a_dropped_package_is_removed(shop: Shop, capsys: pytest.CaptureFixture[str]):
    shop.installation.install("run")
    assert shop.found() == {"shopone": "1.0", "shoptwo": "1.0"}
    shop.installation.install("test")
    assert shop.found() == {"shopone": "1.0", "shoptwo": "1.0", "shopthree": "1.0"}
    said = capsys.readouterr().out
    assert "installing 2 packages" in said
    assert "installing 1 packages" in said
    assert "with uv" in said
    shop.require("processing", "shopone", "1.1")
    shop.require("base", "shopone", "1.1")
    shop.installation.install("run")
    assert shop.found() == {"shopone": "1.1", "shoptwo": "1.0", "shopthree": "1.0"}, "the tests need the second"
    shop.require("local", "shopone", "1.1")
    shop.installation.install("test")
    assert shop.found() == {"shopone": "1.1"}
    capsys.readouterr()
    shop.installation.install("test")
    assert capsys.readouterr().out == ""


@pytest.mark.processes
def test_interrupted_installation_is_repaired(shop: Shop):
    shop.installation.install("run")
    module = next((shop.root / ".venv/lib").glob("python*/site-packages/shopone.py"))
    module.unlink()  # A link to uv's cache.
    module.write_text("version = 'half'\n")
    for file in ("METADATA", "RECORD"):
        (module.parent / "shoptwo-1.0.dist-info" / file).unlink()
    shop.installation.unfinished.touch()
    shop.installation.install("run")
    assert shop.found() == {"shopone": "1.0", "shoptwo": "1.0"}
    assert not shop.installation.unfinished.exists()


@pytest.mark.processes
def test_pip_installs_the_same_where_uv_cannot(shop: Shop, capsys: pytest.CaptureFixture[str]):
    shop.require("uv", "uv", "0.0.1")
    shop.installation.install("run")
    assert shop.found() == {"shopone": "1.0", "shoptwo": "1.0"}
    said = capsys.readouterr().out
    assert said.count("pip installs them, since uv could not") == 1
    assert "2 packages installed with pip" in said


@pytest.mark.processes
def test_other_bytes_than_pinned_are_refused_and_leave_no_stamp(shop: Shop):
    (shop.root / "requirements/base.txt").write_text(f"shopone==1.0 --hash=sha256:{'0' * 64}\n")
    with pytest.raises(Failed, match="Expected sha256"):
        shop.installation.install("run")
    assert not shop.installation.stamp("run").exists()
    shop.require("base", "shopone", "1.0")
    shop.installation.install("run")
    assert shop.found()["shopone"] == "1.0"


@pytest.mark.processes
def test_warning_of_uv_is_no_part_of_its_cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("SSL_CERT_DIR", "/nowhere")
    assert installation._has_cache(str(UV))
    assert os.listdir() == ["cache"]


def test_wrong_name_of_a_set_is_told(capsys: pytest.CaptureFixture[str]):
    assert installation.main(["all"]) == 2
    assert "run|test" in capsys.readouterr().out
