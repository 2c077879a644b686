"""Refused API requests are counted, a row for each user, status and hour; what was changed has an entry of its own."""

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.test import Client
from django.utils import timezone
from rest_framework.test import APIClient

from ami.main.services import tokens
from ami.queues import disabling, wishes
from ami.queues.models import AuditEntry, RefusedRequests
from ami.queues.refusals import Refused
from ami.queues.wishes import Operator
from tests.support.product import factories

pytestmark = [pytest.mark.django_db, pytest.mark.sqlite]
UNKNOWN = f"/api/v2/jobs/{'9' * 18}/run/"


def client(user: Any) -> APIClient:
    made = APIClient()
    made.credentials(HTTP_AUTHORIZATION=f"Token {tokens.issue(user)[1]}")
    return made


def counted() -> dict[tuple[int, int], int]:
    rows = RefusedRequests.objects.values_list("user_id", "status", "requests")
    return {(user, status): requests for user, status, requests in rows}


def test_requests_that_are_refused_make_one_row_for_each_status(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "ami.audit")
    one, other = factories.user(), factories.user()
    first, second = client(one), client(other)
    for number in range(20):
        assert first.post(f"/api/v2/jobs/{10**17 + number}/run/").status_code == 404
        assert first.delete("/api/v2/jobs/").status_code == 405
        assert first.post("/api/v2/projects/", {"name": "\x00"}, format="json").status_code == 400
        assert first.post("/api/v2/queues/antenna/pause/").status_code == 403
        assert first.post("/api/v2/projects/", b"x", content_type="text/plain").status_code == 415
    assert second.post(UNKNOWN).status_code == 404
    assert not AuditEntry.objects.exists()
    assert not LogEntry.objects.exists()
    # A view that records its operations by itself (pause) does not count what was not allowed.
    assert counted() == {(one.pk, status): 20 for status in (404, 405, 400, 415)} | {(other.pk, 404): 1}
    assert RefusedRequests.objects.get(user=one, status=404).last == f"API Job run pk {10**17 + 19}"
    assert len([line for line in caplog.messages if '"answered 404"' in line]) == 21


def test_another_hour_is_another_row() -> None:
    user = factories.user()
    client(user).post(UNKNOWN)
    earlier = timezone.now().replace(minute=0, second=0, microsecond=0) - timedelta(hours=3)
    RefusedRequests.objects.update(hour=earlier)
    client(user).post(UNKNOWN)
    assert RefusedRequests.objects.filter(user=user, status=404, requests=1).count() == 2


def test_nobody_is_counted_and_what_is_done_is_recorded() -> None:
    assert APIClient().post(UNKNOWN).status_code == 401
    user = factories.user()
    assert client(user).post("/api/v2/projects/", {"name": "mine"}, format="json").status_code == 201
    assert not RefusedRequests.objects.exists()
    assert AuditEntry.objects.get().outcome == "answered 201"


def test_refusals_are_shown_in_the_admin_and_not_changed() -> None:
    client(factories.user()).post(UNKNOWN)
    browser = Client()
    browser.force_login(factories.user(is_staff=True, is_superuser=True))
    page = browser.get("/admin/queues/refusedrequests/")
    assert "API Job run pk 9999" in page.content.decode()
    assert browser.get("/admin/queues/refusedrequests/add/").status_code == 403


def test_states_of_what_does_not_exist_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wishes, "MOST_OF_A_KIND", 2)
    for number in (1, 2, 2):
        disabling.disable(f"job:{number}", Operator("ada"))
    with pytest.raises(Refused, match="states of a job"):
        disabling.disable("job:3", Operator("ada"))
