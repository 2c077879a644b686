"""What an operator clicks in Django's admin runs at once, on the queue of people."""

import re
import secrets
from collections.abc import Iterator

import httpx
import pytest

from tests.support.containers.deployment import Deployment
from tests.support.containers.engine import until

SCHEDULED = "ami.main.tasks.purge_old_rows"


class Browser:
    """A signed-in browser. Session cookies are for https alone; a proxy says so in a header, as this does."""

    def __init__(self, web: str) -> None:
        self._http = httpx.Client(base_url=web, headers={"X-Forwarded-Proto": "https", "Referer": "https://localhost"})
        self._cookies: dict[str, str] = {}

    def __enter__(self) -> "Browser":
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def get(self, path: str) -> httpx.Response:
        return self._sent("GET", path)

    def post(self, path: str, **form: str) -> httpx.Response:
        form["csrfmiddlewaretoken"] = re.search(r'csrfmiddlewaretoken" value="(\w+)"', self.get(path).text)[1]
        return self._sent("POST", path, form)

    def _sent(self, method: str, path: str, form: dict[str, str] | None = None) -> httpx.Response:
        cookie = "; ".join(f"{name}={value}" for name, value in self._cookies.items())
        headers = {"Host": "localhost", "Cookie": cookie}
        answer = self._http.request(method, path, data=form, headers=headers, timeout=30)
        self._cookies |= dict(re.findall(r"^(\w+)=([^;]+);", "\n".join(answer.headers.get_list("set-cookie")), re.M))
        return answer


@pytest.fixture(scope="module")
def operator(deployment: Deployment) -> Iterator[Browser]:
    email, password = f"{secrets.token_hex(4)}@antenna.example", secrets.token_urlsafe(16)
    environment = [f"DJANGO_SUPERUSER_PASSWORD={password}", f"DJANGO_SUPERUSER_EMAIL={email}"]
    create = ["env", *environment, "python", "manage.py", "createsuperuser", "--noinput"]
    deployment.execute("web", *create)
    with Browser(deployment.web_url) as browser:
        answer = browser.post("/admin/login/", username=email, password=password, next="/admin/")
        assert answer.status_code == 302, answer.text[:500]
        yield browser


def test_run_selected_tasks_now_runs_them_on_the_workers_of_people(deployment: Deployment, operator: Browser):
    page = operator.get("/admin/django_celery_beat/periodictask/?all=").text
    rows = re.findall(r'value="(\d+)" class="action-select".*?</tr>', page, re.S)
    texts = re.findall(r'class="action-select".*?</tr>', page, re.S)
    (entry,) = [number for number, text in zip(rows, texts, strict=True) if SCHEDULED in text]
    before = deployment.logs("celeryworker_interactive").count(f"{SCHEDULED}[")
    answer = operator.post("/admin/django_celery_beat/periodictask/", action="run_tasks", _selected_action=entry)
    assert answer.status_code == 302, answer.text[:500]

    def succeeded() -> bool:
        said = deployment.logs("celeryworker_interactive")
        done = [line for line in said.splitlines() if f"{SCHEDULED}[" in line and "succeeded" in line]
        return bool(done) and said.count(f"{SCHEDULED}[") > before

    until(succeeded, 120, "the task ran where people's tasks run")


def test_who_is_not_signed_in_sees_and_triggers_nothing(deployment: Deployment):
    with Browser(deployment.web_url) as stranger:
        assert stranger.get("/admin/django_celery_beat/periodictask/").status_code == 302
        assert stranger.get("/api/v2/jobs/").status_code in (401, 403)
