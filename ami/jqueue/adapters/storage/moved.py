"""The mark that an imported queue leaves behind, so that nothing opens it as a queue of its own."""

from pathlib import Path

from ami.jqueue.domain.errors import StorageError

#: How the content of a file or blob begins whose jobs are elsewhere. It is not JSON: no program takes it for a queue.
BEGINNING = b"This queue was imported into "

#: The file of a journal's folder that holds the mark.
MARK_NAME = "imported-into"


def mark_of(target: str) -> bytes:
    """Return the content that says that the jobs are at ``target``, an absolute path or URL."""
    return BEGINNING + target.encode(errors="surrogateescape") + b"\n"


def moved_to(content: bytes) -> str | None:
    """Return where the jobs are, None where the content is not a mark."""
    if not content.startswith(BEGINNING):
        return None
    return content.removeprefix(BEGINNING).rstrip(b"\n").decode(errors="surrogateescape")


def refuse_moved(name: object, content: bytes) -> None:
    """Raise StorageError where ``content``, which lies at ``name``, is a mark."""
    if (target := moved_to(content)) is not None:
        raise StorageError(f"{name} was imported into {target}: open that instead")


def folder_mark(folder: Path) -> bytes:
    """Return the mark in a journal's folder, no bytes where there is none."""
    try:
        return (folder / MARK_NAME).read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return b""


def partial_of(path: Path) -> Path:
    """Return where an import builds what becomes ``path``."""
    return path.with_name(f"{path.name}.importing")


def refuse_interrupted(path: Path) -> None:
    """Raise StorageError where nothing is at ``path`` yet, because its import was interrupted."""
    if partial_of(path).exists() and not path.exists():
        raise StorageError(f"the import into {path} was interrupted: repeat python -m ami.jqueue import SOURCE {path}")
