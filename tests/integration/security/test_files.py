"""Files over real connections: links signed by a bucket, and links for processing services."""

import io
import time
from collections.abc import Iterator

import httpx
import pytest
from django.core.files.base import ContentFile
from django.core.files.storage import default_storage
from PIL import Image
from rest_framework.test import APIClient

from ami.exports.models import DataExport
from ami.exports.services import files, writer
from ami.main.services import file_urls
from ami.ml.errors import CaptureUnreadable
from ami.ml.services import crops
from ami.ml.services.capture_files import public_url, read
from processing_service.downloads import Downloader
from tests.support import s3_server
from tests.support.product import factories
from tests.support.product.factories import Turn

CSV = "occurrences_simple_csv"


@pytest.fixture(scope="module")
def server() -> Iterator[s3_server.S3Server]:
    with s3_server.running() as made:
        made.make_bucket("antenna")
        yield made


@pytest.fixture
def bucket(server, settings) -> s3_server.S3Server:
    """The default storage of production with ANTENNA_S3_BUCKET."""
    pytest.importorskip("storages", reason="django-storages, of requirements/production.txt, is not installed")
    options = {
        "bucket_name": "antenna",
        "endpoint_url": server.endpoint,
        "signature_version": "s3v4",
        "location": "media",
        "region_name": server.credentials["region"],
        "access_key": server.credentials["access_key_id"],
        "secret_key": server.credentials["secret_access_key"],
    }
    settings.STORAGES = {
        **settings.STORAGES,
        "default": {"BACKEND": "storages.backends.s3.S3Storage", "OPTIONS": options},
    }
    return server


def picture() -> bytes:
    held = io.BytesIO()
    Image.new("RGB", (64, 48), (200, 80, 40)).save(held, "JPEG")
    return held.getvalue()


def export_of(project) -> DataExport:
    export = DataExport.objects.create(project=project, format=CSV)
    assert writer.advance(export, Turn())
    return export


def test_download_from_a_bucket_redirects_to_a_signed_url(bucket, mine, theirs):
    export = export_of(mine.world.project)
    path = f"/api/v2/exports/{export.pk}/file/"
    assert theirs.client.get(path).status_code == 404
    link = mine.client.get(f"/api/v2/exports/{export.pk}/").json()["file_url"]
    for answer in (mine.client.get(path), APIClient().get(link)):
        assert answer.status_code == 302
        assert answer["Location"].startswith(f"{bucket.endpoint}/antenna/media/exports/")
        assert "X-Amz-Expires=300" in answer["Location"]
        opened = httpx.get(answer["Location"])
        assert (opened.status_code, len(opened.content)) == (200, export.file_size)
        assert opened.headers["Content-Type"] == "text/csv; charset=utf-8"
        assert opened.headers["Content-Disposition"].startswith("attachment;")
    head = mine.client.head(path)
    assert (head.status_code, head["Content-Length"]) == (200, str(export.file_size))
    default_storage.delete(export.file_path)
    assert mine.client.get(path).json() == {"detail": files.FILE_DELETED}


def test_responses_and_services_get_urls_signed_by_the_bucket(bucket, mine):
    [capture] = mine.world.captures(1)
    detection = factories.detection(capture, [1, 1, 9, 9])
    crops.make_crops([capture.pk])
    shown = mine.client.get(f"/api/v2/detections/{detection.pk}/").json()
    for link in (shown["url"], shown["source_image"]["url"], public_url(capture)):
        assert link.startswith(f"{bucket.endpoint}/antenna/media/")
        assert "X-Amz-Signature=" in link
        assert httpx.get(link).headers["Content-Type"] == "image/jpeg"
    assert f"X-Amz-Expires={file_urls.for_services()}&" in public_url(capture)
    with Downloader() as downloader:
        assert downloader.fetch(public_url(capture))[:3] == b"\xff\xd8\xff"


def test_urls_signed_by_the_bucket_are_quoted_once(bucket, mine):
    names = (
        "A",
        "%41",
        "%2541",
        "a?X-Amz-Expires=1#y",
        "a b",
        "a+b",
        "~!@$&*()=:[]{}|'\"<>,;^`",
        " caf\u00e9",
        "cafe\u0301 ",
    )
    captures = [factories.capture(mine.world.station, path=f"odd/{name}/1.jpg") for name in names]
    for capture in captures:
        default_storage.save(capture.path, ContentFile(capture.path.encode()))
    with Downloader() as downloader:
        for capture in captures:
            assert downloader.fetch(public_url(capture)) == read(capture) == capture.path.encode()


def test_key_with_an_empty_folder_does_not_open_another_file(bucket, mine):
    default_storage.save("night/1.jpg", ContentFile(b"another"))
    capture = factories.capture(mine.world.station, path="night//1.jpg")
    with pytest.raises(CaptureUnreadable, match="Must not hold '//'"):
        read(capture)
    assert public_url(capture, "http://testserver").startswith("http://testserver/api/v2/captures/")


def test_capture_with_an_exports_path_gets_no_signed_url(bucket, mine):
    export = export_of(mine.world.project)
    mine.capture.path = export.file_path
    mine.capture.save()
    link = mine.client.get(f"/api/v2/captures/{mine.capture.pk}/").json()["url"]
    assert link.startswith("http://testserver/api/v2/captures/")
    assert APIClient().get(link).status_code == 404
    assert public_url(mine.capture, "http://testserver").startswith("http://testserver/api/v2/captures/")


def test_unreachable_bucket_is_a_503(bucket, mine, settings):
    export = export_of(mine.world.project)
    options = {**settings.STORAGES["default"]["OPTIONS"], "endpoint_url": "http://127.0.0.1:9"}
    settings.STORAGES = {**settings.STORAGES, "default": {**settings.STORAGES["default"], "OPTIONS": options}}
    default_storage.client_config = default_storage.client_config.merge(_one_try())
    answer = mine.client.get(f"/api/v2/exports/{export.pk}/file/")
    assert (answer.status_code, "storage is unreachable" in answer.json()["detail"]) == (503, True)


def _one_try():
    from botocore.config import Config

    return Config(retries={"total_max_attempts": 1}, connect_timeout=2)


@pytest.mark.django_db(transaction=True)
def test_a_service_without_a_token_fetches_a_capture_over_the_wire(live_server, settings):
    settings.ANTENNA_PUBLIC_URL = live_server.url
    capture = factories.capture(
        factories.station(), path=default_storage.save("captures/1.jpg", ContentFile(picture()))
    )
    with Downloader() as downloader:
        assert downloader.fetch(public_url(capture)) == picture()
    bare = public_url(capture).partition("?")[0]
    assert httpx.get(bare).status_code == 401
    assert httpx.get(f"{bare}?expires=1999999999&signature=x").status_code == 403


@pytest.mark.django_db(transaction=True)
def test_a_large_export_is_streamed_in_pieces(live_server):
    export = export_of(factories.project())
    with open(default_storage.path(export.file_path), "wb") as file:
        file.truncate(64 * 1024**2)
    taken, started = 0, time.monotonic()
    with httpx.stream("GET", files.signed_url(export, live_server.url)) as answer:
        assert answer.headers["Content-Length"] == str(64 * 1024**2)
        for piece in answer.iter_raw():
            taken += len(piece)
    assert taken == 64 * 1024**2
    assert time.monotonic() - started < 30
