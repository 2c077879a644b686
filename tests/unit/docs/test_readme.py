"""The README's folders and queues and the glossary stay true and short."""

import re
from pathlib import Path

from ami.topology.table import ROWS

ROOT = Path(__file__).resolve().parents[3]
FOLDERS = re.findall(r"^\| `(ami/[\w/]+|config)/` \| [^|]+ \| (.+) \|$", (ROOT / "README.md").read_text(), re.MULTILINE)


def test_every_module_of_the_folder_list_exists() -> None:
    assert len(FOLDERS) >= 15
    named = [ROOT / folder / name for folder, modules in FOLDERS for name in re.findall(r"`([\w/]+)`", modules)]
    missing = [path for path in named if not (path.with_suffix(".py").is_file() or (path / "__init__.py").is_file())]
    assert missing == []


def test_every_package_of_ami_is_in_the_folder_list() -> None:
    packages = {path.parent.name for path in (ROOT / "ami").glob("*/__init__.py")}
    assert {Path(folder).parts[1] for folder, _ in FOLDERS if folder != "config"} == packages


def test_glossary_has_less_than_forty_words() -> None:
    rows = re.findall(r"^\| (?!word |---)", (ROOT / "docs" / "glossary.md").read_text(), re.MULTILINE)
    assert 0 < len(rows) < 40


def test_table_of_queues_is_the_topologys() -> None:
    rows = re.findall(r"^\| `(antenna[\w-]*)` \| [^|]+ \| (.+) \|$", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert dict(rows) == {row.queue: row.promise for row in ROWS}


def test_pictures_are_shown_and_small() -> None:
    pictures = sorted((ROOT / "docs/images").iterdir())
    text = "".join(path.read_text() for path in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")))
    assert [path.name for path in pictures if f"images/{path.name})" not in text] == []
    sizes = [path.stat().st_size for path in pictures]
    # A browser's page for an error has 4 KB.
    assert min(sizes) > 20_000
    assert sum(sizes) < 1_000_000
