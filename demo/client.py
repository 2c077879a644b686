"""A client of the REST API."""

from __future__ import annotations

from typing import Any

import httpx

TIMEOUT_SECONDS = 30.0


class ApiRefused(Exception):
    """The API returned an error; the message has the request, the status and the body."""


class Client:
    """A client of ``<web>/api/v2/``; call `log_in` first."""

    def __init__(self, web: str) -> None:
        self._http = httpx.Client(base_url=f"{web}/api/v2/", timeout=TIMEOUT_SECONDS)
        self.token = ""

    def log_in(self, email: str, password: str) -> None:
        self.token = self.post("auth/token/login/", {"email": email, "password": password})["auth_token"]
        self._http.headers["Authorization"] = f"Token {self.token}"

    def get(self, path: str, **params: Any) -> Any:
        """Return the JSON of a GET. Raises `ApiRefused`."""
        return self._json(self._http.get(path, params=params))

    def post(self, path: str, body: Any = None, **params: Any) -> Any:
        """POST JSON; return the response's. Raises `ApiRefused`."""
        return self._json(self._http.post(path, json=body, params=params))

    def close(self) -> None:
        self._http.close()

    @staticmethod
    def _json(answer: httpx.Response) -> Any:
        if answer.status_code >= 400:
            request = answer.request
            raise ApiRefused(f"{request.method} {request.url.path} answered {answer.status_code}: {answer.text[:500]}")
        return answer.json() if answer.content else None
