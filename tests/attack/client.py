"""Requests of one role over plain HTTP, and the judgement of every answer."""

import re
import threading
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from http.cookiejar import CookieJar, DefaultCookiePolicy

import httpx

from tests.attack.report import Report

JSON = "application/json"
AT_ONCE = 4
TIMEOUT = httpx.Timeout(90, connect=10)


@dataclass(frozen=True)
class Role:
    """Who sends: ``headers`` sign the role in; ``hidden`` are the texts that no answer to it may hold."""

    name: str
    headers: dict[str, str] = field(default_factory=dict)
    hidden: tuple[str, ...] = ()
    hidden_outside_admin: tuple[str, ...] = ()


@dataclass(frozen=True)
class Request:
    """One request; ``path`` begins with a slash and is percent-encoded, its query included."""

    method: str
    path: str
    body: bytes | None = None
    content_type: str = JSON
    headers: tuple[tuple[str, str], ...] = ()

    def repeat(self, role: Role) -> str:
        """Return the command that repeats it, bounded and without a secret."""
        parts = [f"curl -X {self.method} '$WEB{self.path[:200]}'", f"# as {role.name}"]
        if self.body is not None:
            parts.insert(1, f"-H 'Content-Type: {self.content_type}' -d {self.body[:160]!r}")
        return " ".join(parts)


class Client:
    """Sends requests to one server and counts what their answers show; it may be used from several threads."""

    def __init__(self, url: str, report: Report, secrets: Iterable[str]) -> None:
        self.url, self.report = url, report
        self.secrets = [secret for secret in secrets if len(secret) >= 8]
        self._patterns: dict[tuple[str, ...], re.Pattern[bytes]] = {}
        self._lock = threading.Lock()
        self._addresses = 0
        # No cookie that one role gets may come back with another role's request.
        jar = CookieJar(policy=DefaultCookiePolicy(allowed_domains=[]))
        self.http = httpx.Client(base_url=url, cookies=jar, timeout=TIMEOUT, limits=httpx.Limits(max_connections=64))

    def close(self) -> None:
        """Close its connections."""
        self.http.close()

    def address(self) -> str:
        """Return an address that nobody has used yet, as the proxy in front would tell it."""
        with self._lock:
            self._addresses += 1
            return f"10.{self._addresses // 65536 % 256}.{self._addresses // 256 % 256}.{self._addresses % 256}"

    def send(self, part: str, role: Role, request: Request, *, new_address: bool = True) -> httpx.Response | None:
        """Send one request, judge the answer and return it; None when there was none."""
        headers = {**role.headers, **dict(request.headers)}
        if request.body is not None:
            headers["Content-Type"] = request.content_type
        if new_address:
            headers.setdefault("X-Forwarded-For", self.address())
        self.report.count(part)
        try:
            answer = self.http.request(request.method, request.path, content=request.body, headers=headers)
        except httpx.HTTPError as error:
            self.report.found(part, "errors", f"no answer: {type(error).__name__}", request.repeat(role))
            return None
        self.judge(part, role, request, answer)
        return answer

    def send_all(self, part: str, role: Role, requests: Iterable[Request]) -> None:
        """Send many requests, a few at a time."""
        with ThreadPoolExecutor(AT_ONCE) as pool:
            list(pool.map(lambda request: self.send(part, role, request), requests))

    def judge(self, part: str, role: Role, request: Request, answer: httpx.Response) -> None:
        """Count a server error, and a text that this role must not see."""
        path = template(request.path)
        busy = answer.status_code == 503 and "retry-after" in answer.headers
        if answer.status_code >= 500 and not busy:
            what = f"{answer.status_code} of {request.method} {path}"
            self.report.found(part, "errors", what, request.repeat(role))
        hidden = role.hidden if path.startswith("/admin/") else role.hidden + role.hidden_outside_admin
        whole = answer.content + repr(answer.headers.multi_items()).encode()
        asked = f"{request.path} {request.body!r}"
        seen = self._pattern(hidden).search(whole)
        if seen is not None and seen.group().decode() not in asked:  # Its own words are no news to the sender.
            kind = "another project's text" if seen.group().decode() in hidden else "a secret"
            what = f"{kind} in {answer.status_code} of {request.method} {path} for {role.name}"
            self.report.found(part, "leaks", what, request.repeat(role))

    def _pattern(self, hidden: tuple[str, ...]) -> re.Pattern[bytes]:
        if hidden not in self._patterns:
            texts = {*hidden, *self.secrets} or {"\0nothing\0"}
            self._patterns[hidden] = re.compile(b"|".join(re.escape(text.encode()) for text in sorted(texts)))
        return self._patterns[hidden]


def template(path: str) -> str:
    """Return a path without its query, a star in place of each key."""
    bare = path.split("?")[0]
    return re.sub(r"/(\d+|[^/]*%[^/]*|[0-9a-f]{32,}|[^/]{60,})(?=/|$)", "/*", bare)[:120]
