"""An HTTP client that sends requests as a role and checks every response."""

import functools
import re
import threading
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Any

import httpx

from tests.attack.report import Report

JSON = "application/json"
AT_ONCE = 4
#: Longer than any response on a busy machine; a server that needs more hangs.
TIMEOUT = httpx.Timeout(240)
#: Errors of a connection that the server closed.
CLOSED = (httpx.ReadError, httpx.WriteError, httpx.RemoteProtocolError)


@dataclass(frozen=True)
class Role:
    """A sender: ``headers`` authenticate it; ``hidden`` are the texts that no response to it may contain."""

    name: str
    headers: dict[str, str] = field(default_factory=dict)
    hidden: tuple[str, ...] = ()
    hidden_outside_admin: tuple[str, ...] = ()


@dataclass(frozen=True)
class Request:
    """One request; ``path`` begins with a slash and is percent-encoded, its query included.

    ``kinds`` are its kinds of cases; samples cover each kind.
    """

    method: str
    path: str
    body: bytes | None = None
    content_type: str = JSON
    headers: tuple[tuple[str, str], ...] = ()
    kinds: tuple[str, ...] = ()

    def repeat(self, role: Role) -> str:
        """Return a command that repeats it, shortened and without secrets."""
        parts = [f"curl -X {self.method} '$WEB{self.path[:200]}'", f"# as {role.name}"]
        if self.body is not None:
            parts.insert(1, f"-H 'Content-Type: {self.content_type}' -d {self.body[:160]!r}")
        return " ".join(parts)


class Client:
    """Sends requests to one server and reports errors and leaks in the responses; thread-safe."""

    def __init__(self, url: str, report: Report, secrets: Iterable[str]) -> None:
        self.url, self.report = url, report
        self.secrets = [secret for secret in secrets if len(secret) >= 8]
        self._texts: dict[tuple[str, ...], list[tuple[str, bytes]]] = {}
        self._lock = threading.Lock()
        self._addresses = 0
        self.repeated = 0
        # No cookies: one role's must not be sent with another role's request.
        jar = CookieJar(policy=DefaultCookiePolicy(allowed_domains=[]))
        new = functools.partial(httpx.Client, base_url=url, cookies=jar, timeout=TIMEOUT, verify=False)
        self.http = new(limits=httpx.Limits(max_connections=64))
        self.http_of_new_connections = new(limits=httpx.Limits(max_keepalive_connections=0))

    def close(self) -> None:
        self.http.close()
        self.http_of_new_connections.close()

    def address(self) -> str:
        """Return an unused client address for X-Forwarded-For."""
        with self._lock:
            self._addresses += 1
            return f"10.{self._addresses // 65536 % 256}.{self._addresses // 256 % 256}.{self._addresses % 256}"

    def send(self, part: str, role: Role, request: Request, *, new_address: bool = True) -> httpx.Response | None:
        """Send one request, check the response and return it; None without a response."""
        headers = {**role.headers, **dict(request.headers)}
        if request.body is not None:
            headers["Content-Type"] = request.content_type
        if new_address:
            headers.setdefault("X-Forwarded-For", self.address())
        self.report.count(part)
        try:
            answer = self._exchange(request, headers)
        except httpx.HTTPError as error:
            self.report.found(part, "errors", f"no answer: {type(error).__name__}", request.repeat(role))
            return None
        self.judge(part, role, request, answer)
        return answer

    def _exchange(self, request: Request, headers: dict[str, str]) -> httpx.Response:
        """Return the response to a request.

        The server closes a connection that was idle for two seconds, perhaps while the next request is on its way. Like
        every client, send that request again on a new connection; only if that one is closed, too, it is an error.
        Processes that died are reported elsewhere.
        """
        connected: list[str] = []

        def trace(event: str, _: Any) -> None:
            if event == "connection.connect_tcp.started":
                connected.append(event)

        arguments = {"content": request.body, "headers": headers}
        try:
            return self.http.request(request.method, request.path, **arguments, extensions={"trace": trace})
        except CLOSED:
            if connected:
                raise
        with self._lock:
            self.repeated += 1
        return self.http_of_new_connections.request(request.method, request.path, **arguments)

    def send_all(self, part: str, role: Role, requests: Iterable[Request]) -> None:
        """Send many requests, a few at a time."""
        with ThreadPoolExecutor(AT_ONCE) as pool:
            list(pool.map(lambda request: self.send(part, role, request), requests))

    def judge(self, part: str, role: Role, request: Request, answer: httpx.Response) -> None:
        """Report a server error, and a text that this role must not see."""
        path = template(request.path)
        busy = answer.status_code == 503 and "retry-after" in answer.headers
        if answer.status_code >= 500 and not busy:
            what = f"{answer.status_code} of {request.method} {path}"
            self.report.found(part, "errors", what, request.repeat(role))
        hidden = role.hidden if path.startswith("/admin/") else role.hidden + role.hidden_outside_admin
        whole = answer.content + repr(answer.headers.multi_items()).encode()
        asked = f"{request.path} {request.body!r}"
        for text, encoded in self._texts_for(hidden):
            if encoded in whole and text not in asked:  # An echo of the request is not a leak.
                kind = "another project's text" if text in hidden else "a secret"
                what = f"{kind} in {answer.status_code} of {request.method} {path} for {role.name}"
                self.report.found(part, "leaks", what, request.repeat(role))
                break

    def _texts_for(self, hidden: tuple[str, ...]) -> list[tuple[str, bytes]]:
        if hidden not in self._texts:
            self._texts[hidden] = [(text, text.encode()) for text in sorted({*hidden, *self.secrets})]
        return self._texts[hidden]


def template(path: str) -> str:
    """Return a path without its query, a star in place of each key."""
    bare = path.split("?")[0]
    return re.sub(r"/(\d+|[^/]*%[^/]*|[0-9a-f]{32,}|[^/]{60,})(?=/|$)", "/*", bare)[:120]
