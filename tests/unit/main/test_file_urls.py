"""Signed addresses of files."""

import pytest

from ami.main.services import file_urls
from ami.queues.redaction import redact_text

PATH = "/api/v2/exports/5/file/"


def query(url: str) -> dict[str, str]:
    return dict(part.split("=", 1) for part in url.partition("?")[2].split("&"))


@pytest.fixture
def at(monkeypatch):
    """Sets the clock."""

    def set_clock(seconds: float) -> None:
        monkeypatch.setattr(file_urls.time, "time", lambda: seconds)

    set_clock(1_790_000_000.5)
    return set_clock


def refusal(path, given) -> str:
    with pytest.raises(file_urls.LinkRefused) as refused:
        file_urls.check(path, given)
    return str(refused.value)


def test_a_link_opens_its_address_until_it_expires(at):
    given = query(file_urls.signed_path(PATH, 3600))
    at(1_790_000_000 + 3600)
    file_urls.check(PATH, given)
    at(1_790_000_000 + 3600 + file_urls.WINDOW_SECONDS + 1)
    assert "expired" in refusal(PATH, given)


def test_the_same_file_has_the_same_link_for_some_minutes(at):
    at(1_790_000_101)
    first = file_urls.signed_path(PATH, 3600)
    at(1_790_000_101 + file_urls.WINDOW_SECONDS / 2)
    assert file_urls.signed_path(PATH, 3600) == first
    at(1_790_000_101 + file_urls.WINDOW_SECONDS * 2)
    assert file_urls.signed_path(PATH, 3600) != first


@pytest.mark.parametrize("path", ["/api/v2/exports/6/file/", "/api/v2/exports/55/file/", "/api/v2/captures/5/image/"])
def test_a_link_opens_no_other_file(at, path):
    assert "wrong" in refusal(path, query(file_urls.signed_path(PATH, 3600)))


@pytest.mark.parametrize(
    "change",
    [
        {"expires": "1999999999"},
        {"expires": ""},
        {"expires": "١٧٩٠٠٠٣٦٠٠"},
        {"expires": "1e12"},
        {"signature": ""},
        {"signature": "x"},
        {"signature": "\ud800"},
        {"signature": "a:b"},
        {"signature": "é" * 43},
    ],
)
def test_a_changed_link_is_refused(at, change):
    assert "wrong" in refusal(PATH, query(file_urls.signed_path(PATH, 3600)) | change)


def test_a_link_ends_with_the_secret_key(at, settings):
    given = query(file_urls.signed_path(PATH, 3600))
    settings.SECRET_KEY = "another"
    assert "wrong" in refusal(PATH, given)
    settings.SECRET_KEY_FALLBACKS = ["only-for-tests"]
    file_urls.check(PATH, given)


def test_a_link_for_a_service_outlives_its_work(settings):
    settings.ANTENNA_FILE_URL_SECONDS = 60
    settings.NATS_MAX_EXTENSIONS = 0
    assert file_urls.for_services() == max(file_urls.PUSH_SECONDS, settings.NATS_TASK_TTR * settings.NATS_MAX_DELIVER)
    settings.NATS_TASK_TTR, settings.NATS_MAX_DELIVER = 7200, 3
    assert file_urls.for_services() == 3 * 7200
    settings.NATS_MAX_EXTENSIONS = 9
    assert file_urls.for_services() == 10 * 7200
    settings.NATS_TASK_TTR = 86_400 * 100
    assert file_urls.for_services() == file_urls.LONGEST_SECONDS


def test_signatures_in_quoted_urls_are_redacted():
    quoted = f"404 for url: https://a.example{file_urls.signed_path(PATH, 60)} and https://s3/x?X-Amz-Signature=ab&y=1"
    shown = redact_text(quoted)
    assert query(quoted)["signature"].split()[0] not in shown
    assert shown.endswith("X-Amz-Signature=********&y=1")
