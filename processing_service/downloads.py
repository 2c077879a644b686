"""Fetches pictures over http and https, bounded in size, time and redirects."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from urllib.parse import urljoin, urlsplit

import httpx

_MIB = 1024 * 1024


class DownloadError(Exception):
    """A picture could not be fetched; the message has the URL without its query, which may contain a signature."""


@dataclass(frozen=True)
class DownloadLimits:
    """Limits per picture: bytes, total seconds, seconds between two packets, redirects."""

    max_bytes: int = 64 * _MIB
    total_seconds: float = 120.0
    quiet_seconds: float = 20.0
    redirects: int = 3


class Downloader:
    """Fetches pictures over persistent connections; close it, or use it as a context manager."""

    def __init__(self, limits: DownloadLimits | None = None) -> None:
        self._limits = limits or DownloadLimits()
        self._client = httpx.Client(timeout=httpx.Timeout(self._limits.quiet_seconds), follow_redirects=False)

    def __enter__(self) -> Downloader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._client.close()

    def fetch(self, url: str) -> bytes:
        """Return the body of `url`; `DownloadError` for any refusal, failure or exceeded limit."""
        deadline = time.monotonic() + self._limits.total_seconds
        for _ in range(self._limits.redirects + 1):
            _refuse_other_schemes(url)
            try:
                with self._answer(url) as response:
                    if not response.is_redirect:
                        return self._body(response, url, deadline)
                    url = urljoin(url, response.headers["location"])
            except (httpx.HTTPError, httpx.InvalidURL) as error:
                raise DownloadError(f"{shown(url)}: {type(error).__name__} {error}"[:500]) from error
        raise DownloadError(f"{shown(url)}: more than {self._limits.redirects} redirects")

    @contextmanager
    def _answer(self, url: str) -> Iterator[httpx.Response]:
        """Give the answer to a GET, which is sent again if the server closed a persistent connection meanwhile."""
        request = self._client.build_request("GET", url)
        try:
            response = self._client.send(request, stream=True)
        except (httpx.RemoteProtocolError, httpx.ReadError, httpx.WriteError):
            response = self._client.send(request, stream=True)
        try:
            yield response
        finally:
            response.close()

    def _body(self, response: httpx.Response, url: str, deadline: float) -> bytes:
        if response.status_code != httpx.codes.OK:
            raise DownloadError(f"{shown(url)}: answered {response.status_code}")
        declared = response.headers.get("content-length", "0")
        if declared.isdigit() and int(declared) > self._limits.max_bytes:
            raise DownloadError(f"{shown(url)}: {declared} bytes, more than {self._limits.max_bytes}")
        body = bytearray()
        for chunk in response.iter_bytes(_MIB // 4):
            body += chunk
            if len(body) > self._limits.max_bytes:
                raise DownloadError(f"{shown(url)}: more than {self._limits.max_bytes} bytes")
            if time.monotonic() > deadline:
                raise DownloadError(f"{shown(url)}: not complete after {self._limits.total_seconds:g} s")
        return bytes(body)


def shown(url: str) -> str:
    """Return a URL for logs: without user, password, query and fragment."""
    try:
        parts = urlsplit(url)
        port = f":{parts.port}" if parts.port else ""
        return f"{parts.scheme}://{parts.hostname or ''}{port}{parts.path}"[:300]
    except ValueError:
        return "(not a URL)"


def _refuse_other_schemes(url: str) -> None:
    scheme = url.split(":", 1)[0].lower()
    if scheme not in ("http", "https"):
        raise DownloadError(f"only http and https are fetched, not {scheme[:20]!r}")
