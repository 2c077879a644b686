"""Browsers and rows for the tests of the console's pages."""

from collections.abc import Iterator
from contextlib import contextmanager
from html.parser import HTMLParser
from typing import Any

from django.contrib.auth.models import Permission
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from ami.queues.models import Letter
from tests.support.product import factories

#: No page may take more.
MOST_STATEMENTS = 15


def client(*codenames: str) -> Client:
    """A staff member with every permission to view and these."""
    user = factories.user(is_staff=True)
    views = Permission.objects.filter(codename__startswith="view_")
    user.user_permissions.set([*views, *Permission.objects.filter(codename__in=codenames)])
    made = Client()
    made.force_login(user)
    return made


def text(answer: Any) -> str:
    assert answer.status_code == 200, (answer.status_code, answer.content[:300])
    return str(answer.content.decode())


@contextmanager
def few_statements(most: int = MOST_STATEMENTS) -> Iterator[None]:
    with CaptureQueriesContext(connection) as seen:
        yield
    assert len(seen) <= most, [each["sql"][:200] for each in seen.captured_queries]


def buttons(html: str) -> list[str]:
    """The buttons and forms that change something: those of a POST."""
    found = _Posting()
    found.feed(html)
    return found.found


class _Posting(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag == "form" and given.get("method") == "post" and given.get("id") != "logout-form":
            self.found.append(str(given))


def many_letters(count: int, causes: int = 40) -> None:
    """Dead letters of several causes, as rows alone."""
    now = timezone.now()
    rows = (
        Letter(
            identity=f"many-{number}",
            queue="antenna-ingest.dlq",
            task_id=f"task-{number}",
            task=f"ami.some.task_{number % causes}",
            reason="rejected",
            exception="ValueError",
            cause=f"{number % causes:040x}",
            cause_text="it is <n>",
            arguments="() {'job_id': 5}",
            body=b"[]",
            headers="{}",
            properties="{}",
            first_collected_at=now,
            collected_at=now,
        )
        for number in range(count)
    )
    Letter.objects.bulk_create(rows, batch_size=2000)
