"""A client of Antenna's pull API (v2): log in, register, find jobs, take tasks, post results."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from typing import Any, TypeVar

import httpx
from pydantic import BaseModel, ValidationError

from ami.ml.schemas import (
    AsyncPipelineRegistrationRequest,
    AuthTokenResponse,
    JobReference,
    JobReferencesResponse,
    PipelineProcessingTask,
    ResultRequest,
    TasksRequest,
    TasksResponse,
)
from processing_service.backoff import Backoff
from processing_service.logs import event

log = logging.getLogger(__name__)

Model = TypeVar("Model", bound=BaseModel)


class AntennaError(Exception):
    """Antenna refused a request or was unreachable; `status` is the HTTP status, None without a response."""

    def __init__(self, message: str, status: int | None = None, *, is_unreachable: bool = False) -> None:
        super().__init__(message)
        self.status, self.is_unreachable = status, is_unreachable

    @property
    def is_fatal(self) -> bool:
        """Whether a retry cannot help: the token or its permissions are wrong."""
        return self.status in (401, 403)

    @property
    def is_passing(self) -> bool:
        """Whether Antenna did not answer, or a server error: it may be starting."""
        return self.is_unreachable or (self.status or 0) >= 500


class Antenna:
    """A client of one Antenna; `stop` ends the wait between attempts, except when posting results."""

    def __init__(
        self, url: str, stop: threading.Event, token: str | None = None, backoff: Backoff | None = None
    ) -> None:
        self._client = httpx.Client(base_url=api_base(url), timeout=httpx.Timeout(60.0, connect=10.0))
        self._stop = stop
        self._never = threading.Event()
        self._backoff = backoff or Backoff()
        if token:
            self._authorise(token)

    def close(self) -> None:
        self._client.close()

    def log_in(self, email: str, password: str) -> str:
        """Log in, use the token from now on and return it; `AntennaError` if refused."""
        body = self._send("POST", "auth/token/login/", {"email": email, "password": password})
        token = _read(AuthTokenResponse, body).auth_token
        self._authorise(token)
        return token

    def register(self, project: int, request: AsyncPipelineRegistrationRequest) -> None:
        """Register this worker's pipelines for a project; `AntennaError` if refused."""
        body = self._send("POST", f"projects/{project}/pipelines/", request.model_dump(mode="json"))
        if isinstance(body, dict) and body.get("success") is False:
            raise AntennaError(f"registration refused: {body.get('error')}")
        if isinstance(body, dict) and body.get("error"):
            log.warning(event("registered partly", project=project, reason=body["error"]))

    def jobs(self, slugs: Sequence[str]) -> list[JobReference]:
        """Return jobs with tasks for these pipelines; the request is also this worker's heartbeat."""
        query = {"ids_only": "1", "incomplete_only": "1", "pipeline__slug__in": ",".join(slugs)}
        return _read(JobReferencesResponse, self._send("GET", "jobs/", query=query)).results

    def tasks(self, job: int, request: TasksRequest) -> list[PipelineProcessingTask]:
        """Take up to `batch_size` tasks of a job; none if it has no more or is not active."""
        body = self._send("POST", f"jobs/{job}/tasks/", request.model_dump(mode="json"))
        return _read(TasksResponse, body).tasks

    def post_results(self, job: int, request: ResultRequest) -> None:
        """Post results; retried even while stopping, because no other process has them.

        Results that Antenna refuses are logged with the reason: sent again, they would be refused again.
        """
        answer = self._send("POST", f"jobs/{job}/result/", request.model_dump(mode="json"), stop=self._never)
        tasks = answer.get("tasks") if isinstance(answer, dict) else None
        for task in tasks if isinstance(tasks, list) else []:
            if isinstance(task, dict) and task.get("status") == "refused":
                log.error(event("result refused", job=job, reason=str(task.get("reason"))[:500]))

    def _authorise(self, token: str) -> None:
        self._client.headers["Authorization"] = f"Token {token}"

    def _send(
        self,
        method: str,
        path: str,
        body: dict[str, Any] | None = None,
        query: dict[str, str] | None = None,
        stop: threading.Event | None = None,
    ) -> Any:
        """Send until the status is below 500; waits between attempts end early when `stop` is set."""
        waiting = stop or self._stop
        for failures in range(1, self._backoff.attempts + 1):
            retry_after: str | None = None
            status: int | None = None
            try:
                response = self._client.request(method, path, json=body, params=query)
                if response.status_code < 500:
                    return _answer(response, method, path)
                status, reason = response.status_code, f"answered {response.status_code}"
                retry_after = response.headers.get("retry-after")
            except httpx.TransportError as error:
                reason = type(error).__name__
            if failures == self._backoff.attempts:
                break
            seconds = self._backoff.wait_seconds(failures, retry_after)
            log.warning(event("antenna retry", path=path, reason=reason, failures=failures, wait_seconds=seconds))
            if waiting.wait(seconds):
                break
        raise AntennaError(
            f"{method} {path}: {reason} after {failures} attempts", status, is_unreachable=status is None
        )


def api_base(url: str) -> str:
    """Return the base URL of the v2 API, with its final slash, for the site's URL or the API's own."""
    bare = url.rstrip("/")
    return f"{bare}/" if bare.endswith("/api/v2") else f"{bare}/api/v2/"


def _answer(response: httpx.Response, method: str, path: str) -> Any:
    """Return the JSON of a success; otherwise `AntennaError` with the response's text."""
    if not response.is_success:
        words = response.text[:300].replace("\n", " ")
        raise AntennaError(f"{method} {path}: answered {response.status_code}: {words}", response.status_code)
    try:
        return response.json() if response.content else {}
    except ValueError as error:
        raise AntennaError(f"{method} {path}: the answer is not JSON", response.status_code) from error


def _read(model: type[Model], body: Any) -> Model:
    """Validate a response against its contract; the error omits the values, which may be secret."""
    try:
        return model.model_validate(body)
    except ValidationError as error:
        fields = ", ".join(".".join(map(str, one["loc"])) or "body" for one in error.errors()[:5])
        raise AntennaError(f"an answer does not keep the contract of {model.__name__}: {fields}") from None
