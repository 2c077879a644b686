"""The login of the local Antenna and its secret key: made once, kept in its folder for this user alone."""

from __future__ import annotations

import json
import os
import secrets
from dataclasses import dataclass
from pathlib import Path

EMAIL = "local@antenna.example"
FILE = "login.json"


@dataclass(frozen=True)
class Login:
    """``key`` is Django's secret key: with another one every user would be signed out."""

    folder: Path
    email: str
    password: str
    key: str

    @classmethod
    def kept(cls, folder: Path) -> Login:
        """Return the folder's login; make one where there is none, or none that can be read."""
        file = folder / FILE
        try:
            found = json.loads(file.read_text())
            return cls(folder, str(found["email"]), str(found["password"]), str(found["key"]))
        except (OSError, ValueError, KeyError, TypeError):
            made = cls(folder, EMAIL, secrets.token_urlsafe(12), secrets.token_urlsafe(48))
        text = json.dumps({"email": made.email, "password": made.password, "key": made.key})
        write_private(file, text)
        return made


def write_private(file: Path, text: str) -> None:
    """Write a file that its owner alone may read."""
    number = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(number, "w") as opened:
        os.fchmod(opened.fileno(), 0o600)
        opened.write(text)
