"""Chooses the user a server runs as, its folder, and an executable that this user can reach."""

from __future__ import annotations

import os
import pwd
import shutil
import stat
import tempfile
from pathlib import Path

from provision.kind import Account, Binary, Kind, Unavailable


def is_root() -> bool:
    return os.geteuid() == 0


def candidates(kind: Kind) -> list[Account]:
    """This machine's users for the kind's server when we are root, best first; empty otherwise."""
    found = []
    for name in kind.accounts if is_root() else ():
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        found.append(Account(name, entry.pw_uid, entry.pw_gid))
    return found


def can_reach(path: Path, account: Account) -> bool:
    """Whether the permission bits of `path` and of every folder above it let the account execute it."""
    real = path.resolve()
    for step in (real, *real.parents):
        facts = step.stat()
        if facts.st_uid == account.uid:
            allowed = facts.st_mode & stat.S_IXUSR
        elif facts.st_gid == account.gid:
            allowed = facts.st_mode & stat.S_IXGRP
        else:
            allowed = facts.st_mode & stat.S_IXOTH
        if not allowed:
            return False
    return True


def new_folder(kind: Kind) -> Path:
    """A temporary folder for one server; the caller must remove it."""
    folder = Path(tempfile.mkdtemp(prefix=f"antenna-{kind.name}-"))
    folder.chmod(0o711)
    return folder


def settle(kind: Kind, binary: Binary, folder: Path) -> tuple[Path, Account | None]:
    """The executable and the user to run it as (None: the current one); copies the installation if that user cannot
    reach it.

    Raises `Unavailable` if the server refuses to run as root and there is no other user.
    """
    if not is_root():
        return binary.path, None
    accounts = [account for account in candidates(kind) if can_reach(folder, account)]
    for account in accounts:
        if can_reach(binary.path, account):
            return binary.path, account
    if not kind.refuses_root:
        return binary.path, None
    if not accounts:
        raise Unavailable(f"{kind.executable} refuses to run as root, and none of {', '.join(kind.accounts)} can")
    if binary.root is None:
        raise Unavailable(f"{binary.path} cannot be reached by the user {accounts[0].name}, and root is refused")
    copy = folder / "installation"
    for part in binary.keeps:
        shutil.copytree(binary.root / part, copy / part, symlinks=True)
    copy.chmod(0o755)
    return copy / binary.path.relative_to(binary.root), accounts[0]


def own(folder: Path, account: Account | None) -> None:
    """Make the account the only user of `folder` and its content, except the installation copied into it."""
    folder.chmod(0o700)
    if account is None:
        return
    os.chown(folder, account.uid, account.gid)
    for top, folders, files in os.walk(folder):
        if Path(top) == folder and "installation" in folders:
            folders.remove("installation")
        for name in (*folders, *files):
            os.chown(os.path.join(top, name), account.uid, account.gid)
