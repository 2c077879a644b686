"""A small real server of the pull contract (v2), with Antenna's failures."""

import threading
from collections import deque

from fastapi import FastAPI, HTTPException, Request, Response

from ami.ml.schemas import AsyncPipelineRegistrationRequest, ResultRequest, TasksRequest

TOKEN = "0123456789abcdef0123456789abcdef01234567"


class Contract:
    """Antenna's side: one job with tasks; the next `busy` results get a 503."""

    def __init__(self, urls: list[str], pipeline: str = "constant") -> None:
        self.pipeline = pipeline
        self.tasks = deque(
            {"id": str(n), "image_id": str(n), "image_url": url, "reply_subject": f"$JS.ACK.{n}"}
            for n, url in enumerate(urls, start=1)
        )
        self.results: dict[str, dict] = {}
        self.posts: list[int] = []
        self.takers: list[dict] = []
        self.not_applied: str | None = None
        self.registered: list[AsyncPipelineRegistrationRequest] = []
        self.busy = 0
        self.polls = 0
        self.revoked = False
        self._lock = threading.Lock()

    def app(self) -> FastAPI:
        app = FastAPI()

        @app.post("/api/v2/auth/token/login/")
        def log_in(body: dict):
            if body != {"email": "a@b.c", "password": "pass word"}:
                raise HTTPException(400, "Unable to log in with provided credentials.")
            return {"auth_token": TOKEN}

        @app.post("/api/v2/projects/{project}/pipelines/", status_code=201)
        def register(project: int, body: AsyncPipelineRegistrationRequest, request: Request):
            self._check(request)
            self.registered.append(body)
            return {"timestamp": "2026-01-01T00:00:00", "success": True, "pipelines": [], "error": self.not_applied}

        @app.get("/api/v2/jobs/")
        def jobs(request: Request, ids_only: int, incomplete_only: int, pipeline__slug__in: str):
            self._check(request)
            self.polls += 1
            offered = [{"id": 7, "pipeline_slug": self.pipeline}] if self.tasks else []
            return {"count": len(offered), "results": offered}

        @app.post("/api/v2/jobs/{job}/tasks/")
        def tasks(job: int, body: TasksRequest, request: Request):
            self._check(request)
            with self._lock:
                self.takers.append(body.client_info)
                return {"tasks": [self.tasks.popleft() for _ in range(min(body.batch_size, len(self.tasks)))]}

        @app.post("/api/v2/jobs/{job}/result/")
        def result(job: int, body: ResultRequest, request: Request, response: Response):
            self._check(request)
            with self._lock:
                return self._take(body, response)

        return app

    def _take(self, body: ResultRequest, response: Response):
        if self.busy:
            self.busy -= 1
            self.posts.append(503)
            response.status_code = 503
            response.headers["Retry-After"] = "1"
            return {"detail": "the broker refuses"}
        self.posts.append(200)
        for one in body.results:
            self.results[one.reply_subject] = one.result.model_dump(mode="json")
        tasks = [{"reply_subject": r.reply_subject, "status": "queued", "task_id": "t"} for r in body.results]
        return {"status": "accepted", "job_id": 7, "results_queued": len(tasks), "tasks": tasks}

    def _check(self, request: Request) -> None:
        if self.revoked or request.headers.get("authorization") != f"Token {TOKEN}":
            raise HTTPException(401, "Invalid token.")
