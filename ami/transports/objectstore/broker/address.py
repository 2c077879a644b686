"""Parses a broker's URL: ``file:///path``, ``memory://name``, ``s3://bucket/prefix``, ``gs://...``, ``az://...``."""

import hashlib
import os
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

#: What the URL of a broker begins with, before its scheme.
PREFIX = "objectstore+"

SCHEMES = ("file", "memory", "s3", "gs", "az")
HOW = "write objectstore+file:///path/to/a/folder, objectstore+memory://, or objectstore+s3://bucket/prefix (gs, az)"


@dataclass(frozen=True)
class Address:
    """A parsed URL, without its ``objectstore+``. ``bucket`` is empty for a folder, ``path`` has no leading slash."""

    scheme: str
    bucket: str
    path: str

    @classmethod
    def parse(cls, url: str) -> "Address":
        """Raises ValueError that says what to write instead."""
        scheme, separator, rest = url.partition("://")
        if not separator:
            raise ValueError(f"it has no ://; {HOW}")
        if scheme not in SCHEMES:
            raise ValueError(f"'{scheme}' is not an object storage; {HOW}")
        parts = urlsplit(url)
        # A secret may have a slash: the part after it would be a key's prefix, which is shown.
        if "@" in (parts.netloc if scheme == "file" else rest):
            raise ValueError(f"credentials belong into the environment, not into a broker URL; {HOW}")
        path = unquote(parts.path)
        if parts.scheme == "file":
            if parts.netloc or not path.strip("/"):
                raise ValueError(f"a folder needs an absolute path after file://; {HOW}")
            return cls("file", "", path)
        if parts.scheme != "memory" and not parts.netloc:
            raise ValueError(f"{parts.scheme}:// names no bucket; {HOW}")
        return cls(parts.scheme, parts.netloc, path.strip("/"))

    @classmethod
    def of_switched(cls, scheme: str, host: str | None, path: str | None, urls: Iterable[str]) -> "Address":
        """Return the address of a connection that kombu has switched to one of its alternative ``urls``.

        kombu keeps the parts of the URL only, the host in lower case, and the path of an earlier URL where the new one
        has none; so the URL is found again among the alternatives. Raises ValueError as `parse` does.
        """
        path = path or ""
        given = f"{scheme}://{host or ''}/{quote(path)}"
        candidates = [cls.parse(url.removeprefix(PREFIX)) for url in urls if url.startswith(f"{PREFIX}{scheme}:")]
        same_host = [each for each in candidates if each.bucket.lower() == (host or "").lower()]
        same = [each for each in same_host if each.path.strip("/") == path.strip("/")]
        without_path = [each for each in same_host if not each.path]
        return next(iter([*same, *without_path]), None) or cls.parse(given)

    @property
    def folder(self) -> Path:
        """The folder of a ``file`` address."""
        return Path(self.path)

    @property
    def notify_folder(self) -> Path:
        """This machine's notification files: in the broker's folder, else in the machine's temporary folder."""
        if self.scheme == "file":
            return self.folder / "bells"
        # No other process can see a broker in memory.
        own = f"{os.getpid()}" if self.scheme == "memory" else ""
        name = hashlib.sha256(f"{self}{own}".encode()).hexdigest()[:16]
        return Path(os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir()) / f"objectstore-{os.getuid()}" / name

    @property
    def is_one_process(self) -> bool:
        """Whether no other process can see the broker."""
        return self.scheme == "memory"

    @property
    def url(self) -> str:
        """The URL that `parse` reads."""
        path = quote(self.path)
        return f"{self.scheme}://{self.bucket}{'/' if path and not path.startswith('/') else ''}{path}"

    def __str__(self) -> str:
        return f"{self.scheme}://{self.bucket}{'/' if self.bucket and self.path else ''}{self.path}"
