"""Pictures in the admin: thumbnails in lists, boxes on captures, crops with their label."""

import io
from urllib.parse import urlsplit

import pytest
from django.core.files.base import ContentFile
from django.core.files.storage import default_storage
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from PIL import Image

from ami.main.models import Classification, Taxon
from ami.main.services import thumbnails
from ami.main.services.stored_files import Area
from tests.support import s3_server
from tests.support.product import factories
from tests.support.product.http_services import files_served
from tests.support.product.page_policy import Inline, policy_of

pytestmark = pytest.mark.django_db(transaction=True)


def picture(kind="JPEG", size=(800, 600)) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", size, (40, 60, 80)).save(file, kind)
    return file.getvalue()


@pytest.fixture
def capture(folders):
    made = factories.capture(factories.station(), width=800, height=600)
    default_storage.save(made.path, ContentFile(picture()))
    return made


def thumbnail(capture):
    return reverse("admin:main_sourceimage_thumbnail", args=[capture.pk])


def test_thumbnail_is_a_small_jpeg(browser, capture):
    answer = browser.get(thumbnail(capture))
    with Image.open(io.BytesIO(answer.content)) as small:
        assert (small.format, small.size) == ("JPEG", (240, 180))
    assert "max-age" in answer.headers["Cache-Control"]


def preview(capture):
    return reverse("admin:main_sourceimage_preview", args=[capture.pk])


def crop(detection):
    return reverse("admin:main_detection_crop", args=[detection.pk])


def test_page_shows_a_picture_of_its_size_from_our_origin(browser, folders):
    made = factories.capture(factories.station(), width=3200, height=2400)
    default_storage.save(made.path, ContentFile(picture(size=(3200, 2400))))
    answer = browser.get(preview(made))
    with Image.open(io.BytesIO(answer.content)) as shown:
        assert (shown.format, shown.size) == ("JPEG", (1600, 1200))
    page = browser.get(reverse("admin:main_sourceimage_change", args=[made.pk]))
    assert f'<image href="{preview(made)}"' in page.content.decode()
    assert policy_of(page)["img-src"] == "'self'"


@pytest.fixture
def bucket(settings, folders):
    """The default storage of a deployment with a bucket that no browser reaches."""
    pytest.importorskip("storages", reason="django-storages, of requirements/production.txt, is not installed")
    with s3_server.running() as server:
        server.make_bucket("antenna")
        settings.STORAGES = {
            **settings.STORAGES,
            "default": {
                "BACKEND": "storages.backends.s3.S3Storage",
                "OPTIONS": {
                    "bucket_name": "antenna",
                    "endpoint_url": server.endpoint,
                    "signature_version": "s3v4",
                    "region_name": server.credentials["region"],
                    "access_key": server.credentials["access_key_id"],
                    "secret_key": server.credentials["secret_access_key"],
                },
            },
        }
        yield server


def test_pictures_of_a_bucket_come_from_our_origin(browser, bucket):
    made = factories.capture(factories.station(), width=800, height=600)
    found = factories.detection(made, [10, 20, 110, 90], path="detections/crop.jpg")
    for path in (made.path, found.path):
        default_storage.save(path, ContentFile(picture()))
    page = browser.get(reverse("admin:main_sourceimage_change", args=[made.pk]))
    for address in (thumbnail(made), preview(made), crop(found)):
        answer = browser.get(address)
        assert (answer.status_code, answer.headers["Content-Type"]) == (200, "image/jpeg"), address
    assert crop(found) in page.content.decode()
    assert urlsplit(bucket.endpoint).netloc not in page.content.decode()


def test_file_of_a_bucket_that_is_too_large_is_not_read(monkeypatch):
    class Large(io.BytesIO):
        size = thumbnails.MOST_BYTES + 1

        def read(self, *_):
            raise AssertionError("It is read.")

    monkeypatch.setattr(Area, "open", lambda *_: Large())
    with pytest.raises(thumbnails.NoThumbnail, match="is larger than"):
        thumbnails.thumbnail("large.jpg")


def test_crop_needs_the_permission_and_a_file(browser, client, capture):
    without = factories.detection(capture)
    assert browser.get(crop(without)).status_code == 404
    client.force_login(factories.user(is_staff=True))
    assert client.get(crop(without)).status_code == client.get(preview(capture)).status_code == 403


def test_lists_show_crops(browser, capture):
    found = factories.occurrence(capture, factories.taxon("Noctua"))
    type(found.detection).objects.filter(pk=found.detection_id).update(path="detections/crop.jpg")
    for name in ("detection", "occurrence"):
        text = browser.get(reverse(f"admin:main_{name}_changelist")).content.decode()
        assert f'src="{crop(found.detection)}"' in text


def test_label_at_the_right_edge_ends_where_its_box_does(browser, capture):
    factories.detection(capture, [700, 2, 760, 40])
    text = browser.get(reverse("admin:main_sourceimage_change", args=[capture.pk])).content.decode()
    assert '<text class="capture-label" x="760.0" y="55.6" font-size="13" text-anchor="end">' in text


def test_list_shows_thumbnails(browser, capture):
    assert thumbnail(capture) in browser.get(reverse("admin:main_sourceimage_changelist")).content.decode()


@pytest.mark.parametrize("content", [b"", b"no picture", picture()[:300], picture("GIF"), picture("TIFF")])
def test_broken_or_foreign_file_has_no_thumbnail(browser, folders, content):
    made = factories.capture(factories.station())
    default_storage.save(made.path, ContentFile(content))
    assert browser.get(thumbnail(made)).status_code == 404


def test_picture_with_too_many_pixels_is_not_decoded(browser, capture, settings):
    settings.ANTENNA_MAX_MEGAPIXELS = 0.1
    assert browser.get(thumbnail(capture)).status_code == 404


def test_missing_capture_and_file_are_404(browser, folders):
    assert browser.get(reverse("admin:main_sourceimage_thumbnail", args=[0])).status_code == 404
    assert browser.get(thumbnail(factories.capture(factories.station()))).status_code == 404


def test_thumbnail_needs_the_permission(capture, client):
    client.force_login(factories.user(is_staff=True))
    assert client.get(thumbnail(capture)).status_code == 403


def classify(detection, algorithm, name, score, *, terminal=True):
    taxon = Taxon.objects.get_or_create(name=name)[0]
    Classification.objects.create(detection=detection, algorithm=algorithm, taxon=taxon, score=score, terminal=terminal)


def test_boxes_are_drawn_with_label_and_score(browser, capture):
    for left in (10, 200):
        found = factories.detection(capture, [left, 20, left + 100, 90])
        classify(found, factories.classifier(), "<Noctua>", 0.87)
    classify(found, factories.detector(), "Lepidoptera", 0.99, terminal=False)
    with CaptureQueriesContext(connection) as asked:
        answer = browser.get(reverse("admin:main_sourceimage_change", args=[capture.pk]))
    text = answer.content.decode()
    assert 'viewBox="0 0 800 600"' in text
    assert '<rect class="capture-box" x="10.0" y="20.0" width="100.0" height="70.0"' in text
    assert text.count("&lt;Noctua&gt; 87%") >= 4
    assert "Lepidoptera" not in text
    assert len(asked) <= 15
    page = Inline()
    page.feed(text)
    assert page.found == []


def turned_picture() -> bytes:
    """A JPEG of 80 x 40 whose left half is white, and that viewers turn by a quarter."""
    made, exif, file = Image.new("RGB", (80, 40)), Image.Exif(), io.BytesIO()
    made.paste((255, 255, 255), (0, 0, 40, 40))
    exif[0x0112] = 6
    made.save(file, "JPEG", exif=exif)
    return file.getvalue()


def assert_stored_pixels(answer) -> None:
    with Image.open(io.BytesIO(answer.content)) as shown:
        assert shown.size == (80, 40)
        assert (shown.getpixel((10, 20))[0] > 200, shown.getpixel((70, 20))[0] < 50) == (True, True)
        assert 0x0112 not in shown.getexif()


def test_turned_picture_is_shown_in_its_stored_pixels(browser, folders):
    made = factories.capture(factories.station(), width=80, height=40)
    default_storage.save(made.path, ContentFile(turned_picture()))
    for address in (thumbnail(made), preview(made)):
        assert_stored_pixels(browser.get(address))


def test_published_picture_is_shown_in_its_stored_pixels(browser, folders, settings):
    with files_served({"/moths/trap%20%233/1.jpg": turned_picture()}) as url:
        made = factories.capture(factories.station(), path="trap #3/1.jpg", public_base_url=f"{url}/moths")
        assert_stored_pixels(browser.get(preview(made)))
        assert browser.get(thumbnail(made)).status_code == 404
        page = browser.get(reverse("admin:main_sourceimage_change", args=[made.pk]))
        assert preview(made) in page.content.decode()
        assert policy_of(page)["img-src"] == "'self'"
        settings.ANTENNA_REFUSE_INTERNAL_ENDPOINTS, settings.ANTENNA_ALLOWED_ENDPOINTS = True, ()
        assert browser.get(preview(made)).status_code == 404
        settings.ANTENNA_REFUSE_INTERNAL_ENDPOINTS = False
        made.path = "another.jpg"
        made.save()
        assert browser.get(preview(made)).status_code == 404
    assert browser.get(preview(made)).status_code == 404
