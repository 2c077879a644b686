"""No passwords in responses and logs; a limited login; no files outside their folder; no formulas in cells."""

import logging
import socket

import pytest
from celery import current_app
from django.test import Client
from kombu.exceptions import OperationalError
from rest_framework.test import APIClient

from ami.exports.services.formats.occurrences_csv import safe

SECRET = "hunter2-very-secret"


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def test_password_of_an_unreachable_broker_is_told_to_nobody(place, transactional_db, caplog):
    from ami.jobs.api.errors import exception_handler
    from tests.support.place import celery_at
    from tests.support.product.tenants import tenant

    mine = tenant("mine")
    caplog.set_level(logging.DEBUG)
    with celery_at(f"amqp://antenna:{SECRET}@127.0.0.1:{free_port()}/x"):
        for address in (
            f"deployments/{mine.world.station.pk}/regroup-sessions/",
            f"captures/{mine.capture.pk}/reprocess/",
        ):
            answer = mine.client.post(f"/api/v2/{address}", {}, format="json")
            assert answer.status_code == 202, "its call waits as a row"
            assert SECRET not in answer.content.decode()
        with pytest.raises(OperationalError) as refused:
            current_app.send_task("ami.jobs.tasks.audit_jobs", retry=False)
    answer = exception_handler(refused.value, {})
    assert answer is not None
    assert (answer.status_code, "Retry-After" in answer.headers) == (503, True)
    assert SECRET not in str(answer.data)
    assert SECRET not in caplog.text


def test_no_tokens_or_passwords_in_the_log_of_a_request(mine, caplog):
    caplog.set_level(logging.DEBUG)
    client = mine.client
    token = client._credentials["HTTP_AUTHORIZATION"].split()[1]
    client.get("/api/v2/jobs/")
    client.post("/api/v2/jobs/", {}, format="json")
    login(email="a@b.org", password=SECRET)
    written = "\n".join(record.getMessage() for record in caplog.records if record.name != "django.db.backends")
    assert token not in written
    assert SECRET not in written


def login(client: APIClient | None = None, *, email: str, password: str = "wrong", **headers: str) -> int:
    body = {"email": email, "password": password}
    return (client or APIClient()).post("/api/v2/auth/token/login/", body, format="json", **headers).status_code


def codes(emails, headers=lambda number: {}) -> list[int]:
    return [login(email=email, **headers(number)) for number, email in enumerate(emails)]


def test_eleventh_attempt_in_a_minute_is_a_429(db):
    assert codes(["victim@example.org"] * 11) == [400] * 10 + [429]


def test_case_and_spaces_do_not_make_another_account(db):
    spelled = [" " * n + "Victim@Example.org".swapcase() + " " * (n % 3) for n in range(6)]
    spelled += [
        "VICTIM@example.org\t" * 1,
        "\nvictim@example.org",
        "victim@example.org",
        "vIctim@example.org",
        "V" + "ictim@example.org",
    ]
    assert codes(spelled)[-1] == 429


def test_forged_header_does_not_change_the_address(db):
    tried = codes(["victim@example.org"] * 11, lambda number: {"HTTP_X_FORWARDED_FOR": f"10.0.0.{number}"})
    assert tried[-1] == 429


def test_a_wrong_password_and_an_unknown_person_answer_the_same(mine):
    user = mine.world.user
    user.set_password("right")
    user.save()
    client = APIClient()
    answers = [
        client.post("/api/v2/auth/token/login/", {"email": email, "password": "wrong"}, format="json").content
        for email in (user.email, "unknown@example.org")
    ]
    assert answers[0] == answers[1]
    assert login(email=user.email, password="right") == 200


@pytest.mark.parametrize(
    "way",
    [
        "seen.txt",
        "../hidden.txt",
        "%2e%2e/hidden.txt",
        "..%2fhidden.txt",
        "..%2Fmedia-results/hidden.txt",
        "x/../../hidden.txt",
        "/etc/passwd",
        "%2fetc/passwd",
        "....//hidden.txt",
        "..\\hidden.txt",
        "seen.txt%00",
        "",
        ".",
    ],
)
def test_the_media_folder_is_not_served(way, tmp_path, db):
    """Only the API serves files (test_files.py): no path of a request is opened."""
    (tmp_path / "media" / "seen.txt").write_text("hidden")
    (tmp_path / "hidden.txt").write_text("hidden")
    answer = Client(raise_request_exception=False).get(f"/media/{way}")
    assert answer.status_code in (400, 404)
    assert b"hidden" not in answer.content


@pytest.mark.parametrize("name", ["../outside.jpg", "/etc/passwd", "a/../../outside.jpg", "..", "\0"])
def test_a_captures_path_cannot_leave_the_storage(mine, name, tmp_path):
    from ami.ml.errors import CaptureUnreadable
    from ami.ml.services.capture_files import read

    (tmp_path / "outside.jpg").write_bytes(b"hidden")
    mine.capture.path = name
    with pytest.raises(CaptureUnreadable):
        read(mine.capture)


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@x", "\t=1", "\r=1", "\n=1", " =1", "  @x"])
def test_a_text_cell_never_begins_like_a_formula(text):
    assert safe(text).startswith("'")


@pytest.mark.parametrize("text", ["\x00=1", "\ufeff=1", "\u00a0=1", "\u3000=1", "＝1"])
def test_stripped_characters_do_not_hide_a_formula(text):
    assert safe(text).startswith("'")
