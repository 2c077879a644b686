"""Refused and bounded input: options, secrets, waits and broken pictures."""

import io
import logging
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from PIL import Image

from processing_service import catalogue
from processing_service.__main__ import main
from processing_service.antenna import api_base
from processing_service.backoff import Backoff, asked_seconds
from processing_service.downloads import Downloader, DownloadError, shown
from processing_service.fleet import Credentials
from processing_service.logs import OneLine, event
from processing_service.pictures import PictureError, open_picture


def png(size, mode="RGB"):
    held = io.BytesIO()
    Image.new(mode, size).save(held, "PNG", compress_level=1)
    return held.getvalue()


def test_waits_grow_and_stay_bounded():
    backoff = Backoff(first_seconds=1, longest_seconds=8)
    waits = [backoff.wait_seconds(failures, None, chance=lambda: 1.0) for failures in range(1, 7)]
    assert waits == [1, 2, 4, 8, 8, 8]
    assert backoff.wait_seconds(1, None, chance=lambda: 0.0) == 0.5


def test_retry_after_is_honoured_as_seconds_and_as_date():
    assert Backoff().wait_seconds(1, "7") == 7
    assert Backoff().wait_seconds(1, "99999") == Backoff().longest_asked_seconds
    later = format_datetime(datetime.now(UTC) + timedelta(seconds=30), usegmt=True)
    assert 25 < asked_seconds(later) <= 30
    assert asked_seconds("soon") == 0


@pytest.mark.parametrize("url", ["file:///etc/passwd", "ftp://a/b", "data:,x", "/etc/passwd", ""])
def test_only_http_is_fetched(url):
    with Downloader() as downloader, pytest.raises(DownloadError, match="http"):
        downloader.fetch(url)


def test_url_is_shown_without_its_secrets():
    assert shown("https://user:word@host:9000/b/1.jpg?X-Signature=abc#d") == "https://host:9000/b/1.jpg"


@pytest.mark.parametrize(
    ("content", "reason"),
    [(b"", "0 bytes"), (b"hello", "not a readable"), (png((9, 9))[:45], "not a readable")],
    ids=["empty", "text", "cut"],
)
def test_broken_pictures_are_refused(content, reason):
    with pytest.raises(PictureError, match=reason):
        open_picture(content)


def test_too_many_pixels_are_refused_before_they_are_decoded():
    with pytest.raises(PictureError, match="pixels"):
        open_picture(png((400, 400)), max_pixels=100_000)
    with pytest.raises(PictureError, match="pixels"):
        open_picture(png((20_000, 20_000), "1"))
    with pytest.raises(PictureError, match="more than 89000000"):
        open_picture(png((9_500, 9_500), "1"))


def test_only_camera_formats_are_opened():
    for kind in ("GIF", "TIFF", "WEBP", "BMP"):
        held = io.BytesIO()
        Image.new("RGB", (30, 20)).save(held, kind)
        with pytest.raises(PictureError, match="not a readable picture: neither JPEG nor PNG"):
            open_picture(held.getvalue())


def test_every_pipeline_has_one_detector_and_every_classifier_its_classes():
    for pipeline in catalogue.PIPELINES.values():
        kinds = [algorithm.task_type for algorithm in pipeline.algorithms]
        assert kinds.count("detection") == 1
        for algorithm in pipeline.algorithms:
            if algorithm.task_type == "classification":
                classes = [(one["index"], one["label"]) for one in algorithm.category_map.data]
                assert classes == list(enumerate(algorithm.category_map.labels))


def test_unknown_pipeline_is_refused_at_start_with_the_remedy(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["serve", "--pipeline", "sheet-moth"])
    assert ended.value.code == 2
    assert "there are: sheet-moths, constant" in capsys.readouterr().err


def test_missing_token_is_refused_at_start_with_its_variable(monkeypatch):
    monkeypatch.delenv("ANTENNA_TOKEN", raising=False)
    with pytest.raises(ValueError, match="ANTENNA_TOKEN"):
        Credentials.from_environment(None, None, None)


def test_secrets_are_not_in_repr(monkeypatch):
    monkeypatch.setenv("T", "a-secret")
    assert "a-secret" not in repr(Credentials.from_environment("T", None, None))


@pytest.mark.parametrize("url", ["http://a", "http://a/", "http://a/api/v2", "http://a/api/v2/"])
def test_api_base_accepts_the_site_or_the_api_url(url):
    assert api_base(url) == "http://a/api/v2/"


def test_an_event_is_one_line():
    record = logging.LogRecord("n", logging.INFO, "", 0, event("x", error="a b\nc", n=3), None, None)
    assert OneLine("%(message)s").format(record) == 'x error="a b\\nc" n=3'
