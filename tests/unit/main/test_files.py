"""Files of captures and crops in the API: access by role and link, and refused paths."""

import os
import tracemalloc

import pytest
from django.core.files.base import ContentFile
from django.core.files.storage import default_storage
from rest_framework.test import APIClient

from ami.main.models import Detection, SourceImage
from ami.main.services import file_urls
from ami.ml.errors import CaptureUnreadable
from ami.ml.services import capture_files
from ami.ml.services.capture_files import public_url, read
from tests.support.product import factories

pytestmark = pytest.mark.django_db
BASE = "/api/v2"


@pytest.fixture
def anonymous() -> APIClient:
    """A client without an account, such as `<img>` or a processing service."""
    return APIClient()


@pytest.fixture
def capture(project):
    made = factories.capture(factories.station(project), path="captures/night/1.jpg")
    default_storage.save(made.path, ContentFile(b"picture"))
    return made


@pytest.fixture
def crop(capture):
    return factories.detection(capture, path=default_storage.save("detections/1-abc.jpg", ContentFile(b"crop")))


def image(capture) -> str:
    return f"{BASE}/captures/{capture.pk}/image/"


def body(answer) -> bytes:
    assert answer.status_code == 200, answer.content
    return b"".join(answer.streaming_content)


def test_responses_contain_links_that_need_no_token(client, anonymous, capture, crop):
    shown = client.get(f"{BASE}/captures/{capture.pk}/").json()["url"]
    detection = client.get(f"{BASE}/detections/{crop.pk}/").json()
    assert shown.startswith(f"http://testserver{image(capture)}?expires=")
    assert detection["source_image"]["url"] == shown
    assert body(anonymous.get(shown)) == b"picture"
    assert body(anonymous.get(detection["url"])) == b"crop"


def test_list_contains_links_and_null_for_a_missing_crop(client, anonymous, capture, crop):
    factories.detection(capture)
    found = client.get(f"{BASE}/detections/", {"source_image": capture.pk}).json()["results"]
    assert [bool(row["url"]) for row in found] == [True, False]
    assert body(anonymous.get(found[0]["url"])) == b"crop"
    assert client.get(f"{BASE}/detections/{found[1]['id']}/crop/").status_code == 404


def test_without_a_link_only_a_member_opens_a_file(client, anonymous, capture, crop):
    stranger = APIClient()
    stranger.force_authenticate(factories.user())
    for path, content in ((image(capture), b"picture"), (f"{BASE}/detections/{crop.pk}/crop/", b"crop")):
        assert body(client.get(path)) == content
        assert stranger.get(path).status_code == 404
        assert anonymous.get(path).status_code == 401


def test_wrong_or_expired_link_is_a_403_with_the_reason(anonymous, capture, crop, monkeypatch):
    link = file_urls.signed_path(image(capture), 60)
    other = link.replace(image(capture), f"{BASE}/detections/{crop.pk}/crop/")
    for changed in (other, f"{link}x", link.replace("expires=1", "expires=2"), f"{image(capture)}?signature=x"):
        answer = anonymous.get(changed)
        assert (answer.status_code, "signature of this link is wrong" in answer.json()["detail"]) == (403, True)
    monkeypatch.setattr(file_urls.time, "time", lambda: 4e9)
    answer = anonymous.get(link)
    assert (answer.status_code, "has expired" in answer.json()["detail"]) == (403, True)


def test_an_expired_link_still_opens_by_the_readers_role(client, capture, monkeypatch):
    link = file_urls.signed_path(image(capture), 60)
    monkeypatch.setattr(file_urls.time, "time", lambda: 4e9)
    assert body(client.get(link)) == b"picture"


def test_a_link_opens_its_file_and_no_other_view(anonymous, capture):
    link = file_urls.signed_path(image(capture), 60)
    query = link.partition("?")[2]
    for path in (f"{BASE}/captures/{capture.pk}/", f"{BASE}/captures/", f"{BASE}/captures/0{capture.pk}/image/"):
        assert anonymous.get(f"{path}?{query}").status_code in (401, 403)
    assert anonymous.post(link).status_code == 405
    assert anonymous.delete(link).status_code == 405


def test_link_works_beside_an_expired_token(anonymous, capture):
    anonymous.credentials(HTTP_AUTHORIZATION="Token 0123")
    assert body(anonymous.get(file_urls.signed_path(image(capture), 60))) == b"picture"
    assert anonymous.get(image(capture)).status_code == 401


@pytest.mark.parametrize("accept", ["image/avif,image/webp,*/*;q=0.8", "image/jpeg", "text/html", "application/pdf"])
def test_accept_header_is_ignored(anonymous, capture, accept):
    answer = anonymous.get(file_urls.signed_path(image(capture), 60), HTTP_ACCEPT=accept)
    assert body(answer) == b"picture"
    assert answer["Content-Type"] == "image/jpeg"
    assert answer["X-Content-Type-Options"] == "nosniff"
    assert answer["Cache-Control"] == "private, max-age=3600"


def test_head_returns_the_size_without_the_file(anonymous, capture):
    answer = anonymous.head(file_urls.signed_path(image(capture), 60))
    assert (answer.status_code, answer["Content-Length"], answer["Content-Type"]) == (200, "7", "image/jpeg")
    assert not answer.streaming
    assert answer.content == b""
    assert anonymous.head(image(capture)).status_code == 401


@pytest.mark.parametrize("name", ["x.html", "x.svg", "x", "x.jpg.htm"])
def test_unknown_file_type_is_an_attachment(anonymous, project, name):
    capture = factories.capture(factories.station(project), path=default_storage.save(name, ContentFile(b"<script>")))
    answer = anonymous.get(file_urls.signed_path(image(capture), 60))
    assert answer["Content-Type"] == "application/octet-stream"
    assert answer["Content-Disposition"] == f'attachment; filename="capture-{capture.pk}.bin"'
    assert "sandbox" in answer["Content-Security-Policy"]
    assert body(answer) == b"<script>"


def test_capture_with_a_public_url_keeps_it(client, anonymous, project):
    capture = factories.capture(factories.station(project), path="1.jpg", public_base_url="https://pictures.example/")
    assert client.get(f"{BASE}/captures/{capture.pk}/").json()["url"] == "https://pictures.example/1.jpg"
    assert public_url(capture) == "https://pictures.example/1.jpg"
    answer = client.get(image(capture))
    assert (answer.status_code, answer["Location"]) == (302, "https://pictures.example/1.jpg")
    assert anonymous.get(image(capture)).status_code == 401


def test_a_processing_service_gets_an_absolute_link_that_needs_no_token(anonymous, capture, settings):
    settings.ANTENNA_PUBLIC_URL = "https://antenna.example"
    pushed, pulled = public_url(capture), public_url(capture, "http://web:8000/")
    assert pushed.startswith(f"https://antenna.example{image(capture)}?")
    assert pulled.startswith(f"http://web:8000{image(capture)}?")
    assert body(anonymous.get(pulled.removeprefix("http://web:8000"))) == b"picture"


def test_links_have_the_base_url_of_their_audience(client, capture, settings):
    settings.ANTENNA_PUBLIC_URL, settings.ANTENNA_SERVICES_URL = "https://antenna.example", "http://web:8000"
    assert public_url(capture).startswith(f"http://web:8000{image(capture)}?")
    assert public_url(capture, "http://elsewhere").startswith(f"http://elsewhere{image(capture)}?")
    assert file_urls.capture_address(capture) == f"https://antenna.example{image(capture)}"
    assert "http://web:8000" not in client.get(f"{BASE}/captures/{capture.pk}/").text


def test_missing_file_is_a_404_with_the_reason(client, capture):
    default_storage.delete(capture.path)
    answer = client.get(image(capture))
    assert (answer.status_code, answer.json()) == (404, {"detail": "The picture is not in the storage."})
    assert client.get(f"{BASE}/captures/{capture.pk + 999}/image/").status_code == 404


OUTSIDE = ["../outside.jpg", "/etc/passwd", "a/../../outside.jpg", "..", ".", "", "exports/a.csv", "detections/a.jpg"]
OUTSIDE += ["Exports/a.csv", "exports//a.csv", "%2e%2e/outside.jpg", "captures/../exports/a.csv", "..\\outside.jpg"]


@pytest.mark.parametrize("path", OUTSIDE)
def test_a_captures_path_opens_nothing_else(client, anonymous, capture, path, tmp_path):
    (tmp_path / "outside.jpg").write_bytes(b"hidden")
    for name in ("exports/a.csv", "detections/a.jpg", "Exports/a.csv"):
        default_storage.save(name, ContentFile(b"hidden"))
    SourceImage.objects.update(path=path)
    assert client.get(image(capture)).status_code == 404
    assert anonymous.get(public_url(SourceImage.objects.get(), "http://testserver")).status_code == 404
    with pytest.raises(CaptureUnreadable):
        read(SourceImage.objects.get())


@pytest.mark.parametrize("path", ["exports/a.csv", "../outside.jpg", "x/../exports/a.csv"])
def test_a_crops_path_opens_no_export(client, crop, path, tmp_path):
    (tmp_path / "outside.jpg").write_bytes(b"hidden")
    default_storage.save("exports/a.csv", ContentFile(b"hidden"))
    Detection.objects.update(path=path)
    assert client.get(f"{BASE}/detections/{crop.pk}/crop/").status_code == 404


@pytest.mark.parametrize("target", ["outside.jpg", "media/exports/a.csv", "media"])
def test_symlink_out_of_the_folder_is_not_followed(client, capture, target, tmp_path):
    (tmp_path / "outside.jpg").write_bytes(b"hidden")
    default_storage.save("exports/a.csv", ContentFile(b"hidden"))
    default_storage.delete(capture.path)
    os.symlink(tmp_path / target, default_storage.path(capture.path))
    assert client.get(image(capture)).status_code == 404


def test_symlink_to_an_allowed_source_root_is_followed(client, capture, tmp_path, settings):
    (tmp_path / "disk").mkdir()
    (tmp_path / "disk" / "1.jpg").write_bytes(b"on a disk")
    os.symlink(tmp_path / "disk", default_storage.path("linked"))
    SourceImage.objects.update(path="linked/1.jpg")
    assert client.get(image(capture)).status_code == 404
    settings.ANTENNA_LOCAL_SOURCE_ROOTS = [str(tmp_path / "disk")]
    assert body(client.get(image(capture))) == b"on a disk"


def test_a_pipe_is_not_opened(client, capture):
    default_storage.delete(capture.path)
    os.mkfifo(default_storage.path(capture.path))
    assert client.get(image(capture)).status_code == 404


def test_files_and_folders_are_private_to_their_owner(capture):
    from django.core.files.storage import storages

    kept = storages["results"].path(storages["results"].save("mode/a.gz", ContentFile(b"x")))
    for path, mode in ((default_storage.path(capture.path), 0o600), (kept, 0o600)):
        assert os.stat(path).st_mode & 0o777 == mode
        assert os.stat(os.path.dirname(path)).st_mode & 0o777 == 0o700
    storages["results"].delete("mode/a.gz")


@pytest.mark.parametrize(
    "way", ["captures/1.json", "captures.json", "captures/1/image.json", "deployments/1/sync.json"]
)
def test_format_suffix_is_a_404(client, way):
    assert client.get(f"{BASE}/{way}").status_code == 404
    assert client.post(f"{BASE}/deployments/1/sync.json").status_code == 404


def test_small_file_takes_little_memory_to_read(capture):
    tracemalloc.start()
    try:
        assert read(capture) == b"picture"
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()


def test_file_above_the_limit_is_not_read(capture, monkeypatch):
    monkeypatch.setattr(capture_files, "MAX_BYTES", 6)
    with pytest.raises(CaptureUnreadable, match="is larger than 6 bytes"):
        read(capture)
