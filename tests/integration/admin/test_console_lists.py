"""Every list of the console, for a superuser: it opens, shows no secret, and complies with the policy of pages."""

import pytest

from ami.queues.models import Letter, TaskFailure, Worker
from tests.support.product.page_policy import PAGE, Inline, policy_of
from tests.support.product.secret_rows import seed

LISTS = ("workers/", "letters/", "letters/all/?state=any", "replays/", "schedule/", "audit/", "handbook/")


def addresses() -> list[str]:
    letters = [f"letters/{row.pk}/" for row in Letter.objects.all()[:5]]
    causes = [f"letters/cause/{row.cause}/?state=any" for row in Letter.objects.exclude(cause="")[:5]]
    tasks = [f"task/{row.task_id}/" for row in TaskFailure.objects.all()[:5]]
    workers = [f"workers/{row.node}/" for row in Worker.objects.all()[:5]]
    return [f"/admin/queues/{each}" for each in (*LISTS, *letters, *causes, *tasks, *workers)]


@pytest.mark.django_db
def test_no_list_shows_a_secret_or_breaks_its_policy(browser):
    hidden = seed()
    opened = 0
    for address in addresses():
        answer = browser.get(address)
        if answer.status_code == 404 and "/workers/" in address:
            continue  # Not in the snapshot.
        assert answer.status_code == 200, address
        text, seen = answer.content.decode(), Inline()
        assert [secret[:12] for secret in hidden if secret in text] == [], address
        seen.feed(text)
        assert (seen.found, policy_of(answer)) == ([], PAGE), address
        opened += 1
        for kind in ("csv", "json"):
            data = browser.get(address, {"format": kind}).content.decode()
            assert [secret[:12] for secret in hidden if secret in data] == [], (address, kind)
    assert opened >= len(LISTS) + 3
