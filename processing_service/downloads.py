"""Fetches pictures over http and https, bounded in size, time and redirects; retries what the network lost."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from urllib.parse import urljoin, urlsplit

import httpx

from processing_service.backoff import Backoff
from processing_service.logs import event

log = logging.getLogger(__name__)

_MIB = 1024 * 1024

NETWORK_STATUSES = frozenset({408, 425, 429, *range(500, 600)})
"""Answers of a server that is busy or broken; every other refusal is about the picture itself."""

RETRIES = Backoff(attempts=7, first_seconds=0.5, longest_seconds=8.0, longest_asked_seconds=30.0)


_OUR_FAULT = (httpx.UnsupportedProtocol, httpx.LocalProtocolError)
"""Transport errors of a request that cannot be sent at all."""


class DownloadError(Exception):
    """A picture cannot be fetched; the message has the URL without its query, which may contain a signature."""


class NetworkError(Exception):
    """A picture could not be fetched now: refused, reset, timed out, no name, 5xx. A later attempt may succeed.

    Not a `DownloadError`: it says nothing about the picture. `retry_after` is the header of the answer, if any.
    """

    def __init__(self, message: str, retry_after: str | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


@dataclass(frozen=True)
class DownloadLimits:
    """Limits per picture: bytes, seconds of one attempt, seconds between two packets, redirects, seconds of retries.

    No retry begins when `retry_seconds` have passed since the first attempt began.
    """

    max_bytes: int = 64 * _MIB
    total_seconds: float = 120.0
    quiet_seconds: float = 20.0
    redirects: int = 3
    retry_seconds: float = 30.0


class Downloader:
    """Fetches pictures over persistent connections; close it, or use it as a context manager.

    `stop` ends the wait between two attempts.
    """

    def __init__(self, limits: DownloadLimits | None = None, stop: threading.Event | None = None) -> None:
        self._limits = limits or DownloadLimits()
        self._stop = stop or threading.Event()
        self._client = httpx.Client(timeout=httpx.Timeout(self._limits.quiet_seconds), follow_redirects=False)

    def __enter__(self) -> Downloader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._client.close()

    def fetch(self, url: str, retries: Backoff = RETRIES) -> bytes:
        """Return the body of `url`.

        `DownloadError` for a refusal or an exceeded limit; `NetworkError` if the network or the server failed at every
        attempt.
        """
        began = time.monotonic()
        for failures in range(1, retries.attempts + 1):
            try:
                return self._attempt(url)
            except NetworkError as error:
                seconds = retries.wait_seconds(failures, error.retry_after)
                late = time.monotonic() - began + seconds > self._limits.retry_seconds
                if failures == retries.attempts or late:
                    raise
                log.warning(event("download retry", reason=error, failures=failures, wait_seconds=seconds))
                if self._stop.wait(seconds):
                    raise
        raise ValueError("a download needs at least one attempt")

    def _attempt(self, url: str) -> bytes:
        deadline = time.monotonic() + self._limits.total_seconds
        for _ in range(self._limits.redirects + 1):
            _refuse_other_schemes(url)
            try:
                with self._answer(url) as response:
                    if not response.is_redirect:
                        return self._body(response, url, deadline)
                    url = urljoin(url, response.headers["location"])
            except httpx.TransportError as error:
                failure = DownloadError if isinstance(error, _OUR_FAULT) else NetworkError
                raise failure(_reason(url, error)) from error
            except (httpx.HTTPError, httpx.InvalidURL) as error:
                raise DownloadError(_reason(url, error)) from error
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
        if response.status_code in NETWORK_STATUSES:
            retry_after = response.headers.get("retry-after")
            raise NetworkError(f"{shown(url)}: answered {response.status_code}", retry_after)
        if response.status_code != httpx.codes.OK:
            raise DownloadError(f"{shown(url)}: answered {response.status_code}")
        declared = response.headers.get("content-length", "0")
        if declared.isdigit() and int(declared) > self._limits.max_bytes:
            raise DownloadError(f"{shown(url)}: {declared} bytes, more than {self._limits.max_bytes}")
        # It is unpacked by the piece, of any size, before it is bounded.
        if len(response.headers.get_list("content-encoding", split_commas=True)) > 1:
            raise DownloadError(f"{shown(url)}: compressed more than once")
        body = bytearray()
        for chunk in response.iter_bytes(_MIB // 4):
            body += chunk
            if len(body) > self._limits.max_bytes:
                raise DownloadError(f"{shown(url)}: more than {self._limits.max_bytes} bytes")
            if time.monotonic() > deadline:
                raise NetworkError(f"{shown(url)}: not complete after {self._limits.total_seconds:g} s")
        return bytes(body)


def shown(url: str) -> str:
    """Return a URL for logs: without user, password, query and fragment."""
    try:
        parts = urlsplit(url)
        port = f":{parts.port}" if parts.port else ""
        return f"{parts.scheme}://{parts.hostname or ''}{port}{parts.path}"[:300]
    except ValueError:
        return "(not a URL)"


def _reason(url: str, error: Exception) -> str:
    return f"{shown(url)}: {type(error).__name__} {error}"[:500]


def _refuse_other_schemes(url: str) -> None:
    scheme = url.split(":", 1)[0].lower()
    if scheme not in ("http", "https"):
        raise DownloadError(f"only http and https are fetched, not {scheme[:20]!r}")
