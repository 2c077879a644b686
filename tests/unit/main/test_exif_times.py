"""Times in the EXIF data of pictures, of hostile ones too."""

# The tests are about naive times.
# ruff: noqa: DTZ001

import io
import struct
from datetime import UTC, datetime, timedelta

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from ami.main.models import S3StorageSource, SourceImage
from ami.main.services import capture_times
from ami.main.services.capture_times import SMALL_BYTES
from ami.main.services.exif_times import HEAD_BYTES, time_in_exif
from ami.main.services.sources import bucket_client
from ami.main.services.station_sync import SyncState, sync
from tests.support import s3_server
from tests.support.product import factories
from tests.support.product.factories import Turn
from tests.unit.main.test_station_sync import station_of

TAGS = {"taken": 0x9003, "scanned": 0x9004, "changed": 0x0132}
OFFSETS = {"offset": 0x9011, "scanned_offset": 0x9012, "changed_offset": 0x9010}
EVENING = "2022:08:10 23:26:37"


def picture(kind: str = "JPEG", **texts: str | bytes | int) -> bytes:
    exif, file = Image.Exif(), io.BytesIO()
    if "changed" in texts:
        exif[TAGS["changed"]] = texts.pop("changed")
    exif.get_ifd(0x8769).update({(TAGS | OFFSETS)[name]: text for name, text in texts.items()})
    if kind == "TIFF":  # Pillow does not write all of it.
        return exif.tobytes()[6:]
    Image.new("RGB", (8, 8)).save(file, kind, exif=exif.tobytes())
    return file.getvalue()


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "TIFF", "WEBP"])
def test_time_of_the_exposure_is_read_without_a_zone(kind: str):
    assert time_in_exif(picture(kind, taken="2026:06:01 23:15:07")) == datetime(2026, 6, 1, 23, 15, 7)


def test_offset_of_the_exposure_is_kept():
    found = time_in_exif(picture(taken="2026:06:01 23:15:07", offset="+02:00"))
    assert found == datetime(2026, 6, 1, 21, 15, 7, tzinfo=UTC)


@pytest.mark.parametrize("offset", ["+25:00", "02:00", "   :  ", "+02:17", "\0"])
def test_offset_that_is_none_is_left_out(offset: str):
    assert time_in_exif(picture(taken="2026:06:01 23:15:07", offset=offset)) == datetime(2026, 6, 1, 23, 15, 7)


@pytest.mark.parametrize(
    "text", ["0000:00:00 00:00:00", "2026:13:01 00:00:00", "", "    :  :     :  :  ", "x" * 60_000]
)
def test_text_that_is_no_time_is_none(text: str):
    assert time_in_exif(picture(taken=text)) is None


SPELLINGS = {
    "2022:08:10 23:26:37\0\0": "",
    "2022:08:10 23:26:37\0of something else": "",
    "2022/08/10 23:26:37": "",
    "2022-08-10T23:26:37": "",
    "2022.08.10 23.26.37": "",
    "2022:08:10  23:26:37 ": "",
    "20220810 232637": "",
    "2022:08:10:23:26:37": "",
    "2022:08:10 23:26:37.\xff": "",
    "2022:08:10 11:26:37 PM": "",
    "2022:08:10\t23:26:37\n": "",
    "2022:08:10 23:26:37.50": ".500000",
    "2022:08:10 23:26:37+02:00": "+02:00",
    "2022:08:10 23:26:37-0500": "-05:00",
    "2022:08:10 23:26:37 UTC": "+00:00",
}


@pytest.mark.parametrize("text", SPELLINGS)
def test_time_is_read_in_any_spelling_seen(text: str):
    assert str(time_in_exif(picture(taken=text))) == f"2022-08-10 23:26:37{SPELLINGS[text]}"


@pytest.mark.parametrize("text", ["2022: 8:10 24: 5: 3", "2022:8:10 24:5:3", "2022-8-10 0:5:03"])
def test_single_digits_and_the_hour_24_are_read(text: str):
    assert str(time_in_exif(picture(taken=text))) == "2022-08-10 00:05:03"


@pytest.mark.parametrize("half", ["下午", "오후", "μμ"])
def test_half_of_the_day_in_another_language_is_not_left_out(half: str):
    assert time_in_exif(picture(taken=f"2022:08:10 11:26:37 {half}".encode())) is None


@pytest.mark.parametrize("offset", ["Z", "+02:00", "+0200", "+2", "UTC+02:00", "-03:30", "+05:45\0"])
def test_offset_is_read_in_any_spelling_seen(offset: str):
    found = time_in_exif(picture(taken=EVENING, offset=offset))
    hours = {"Z": 0.0, "-03:30": -3.5, "+05:45\0": 5.75}.get(offset, 2.0)
    assert found is not None
    assert found.utcoffset() == timedelta(hours=hours)


@pytest.mark.parametrize("unset", ["0000:00:00 00:00:00", "1970:01:01 00:00:00", "    :  :     :  :  ", 7, b"\xff\xfe"])
def test_digitized_and_the_last_change_stand_in_with_their_offsets(unset: str | bytes | int):
    scanned = picture(taken=unset, offset="+02:00", scanned=EVENING, scanned_offset="-03:30")
    assert str(time_in_exif(scanned)) == "2022-08-10 23:26:37-03:30"
    changed = picture(taken=unset, scanned=unset, scanned_offset="+02:00", changed=EVENING)
    assert str(time_in_exif(changed)) == "2022-08-10 23:26:37"


def test_day_first_is_not_read():
    assert time_in_exif(picture(taken="10/08/2022 23:26:37")) is None


@given(
    st.binary(max_size=400),
    st.sampled_from(
        [b"", b"\xff\xd8", b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff\xe1\x01\x00Exif\0\0", b"RIFF    WEBPEXIF", b"II*\0"]
    ),
)
def test_any_bytes_have_no_time_and_raise_nothing(tail: bytes, head: bytes):
    time_in_exif(head + tail)


@given(st.sampled_from(["JPEG", "PNG", "WEBP", "TIFF"]), st.integers(0, 400), st.binary(min_size=1, max_size=8))
def test_damaged_exif_raises_nothing(kind: str, place: int, damage: bytes):
    data = bytearray(picture(kind, taken="2026:06:01 23:15:07"))
    data[place : place + len(damage)] = damage
    time_in_exif(bytes(data))


def test_directory_that_names_itself_ends():
    tiff = b"II*\0" + struct.pack("<IH", 8, 1) + struct.pack("<HHII", 0x8769, 4, 1, 8) + struct.pack("<I", 8)
    segment = b"Exif\0\0" + tiff
    assert time_in_exif(b"\xff\xd8\xff\xe1" + struct.pack(">H", len(segment) + 2) + segment) is None


@pytest.mark.django_db
def test_sync_takes_the_exif_time_where_the_name_has_none(tmp_path, settings):
    settings.ANTENNA_LOCAL_SOURCE_ROOTS = [str(tmp_path)]
    for name, data in (
        ("20260601220000.jpg", picture(taken="2011:01:01 00:00:00")),
        ("IMG_1.jpg", picture(taken="2026:06:02 01:00:00")),
        ("IMG_2.jpg", picture(taken="2026:06:02 01:00:00", offset="-04:00")),
        ("IMG_3.jpg", picture()),
        ("empty.jpg", b""),
    ):
        (tmp_path / name).write_bytes(data)
    state = sync(station_of(tmp_path, time_zone="Europe/Berlin"), SyncState(), Turn())
    assert (state.synced, state.failed) == (3, 2)
    times = dict(SourceImage.objects.values_list("path", "timestamp"))
    assert times == {
        "20260601220000.jpg": datetime(2026, 6, 1, 20, tzinfo=UTC),
        "IMG_1.jpg": datetime(2026, 6, 1, 23, tzinfo=UTC),
        "IMG_2.jpg": datetime(2026, 6, 2, 5, tzinfo=UTC),
    }


@pytest.mark.django_db
def test_only_files_without_a_time_in_their_name_are_opened(tmp_path, settings, monkeypatch):
    settings.ANTENNA_LOCAL_SOURCE_ROOTS = [str(tmp_path)]
    for name in ("20260601220000.jpg", "20260601220001.jpg"):
        (tmp_path / name).write_bytes(bytes(SMALL_BYTES))
    large = picture(taken="2026:06:02 01:00:00") + b"\0" * (4 * HEAD_BYTES)
    (tmp_path / "IMG_1.jpg").write_bytes(large)
    read, head = [], capture_times._head_of_file
    monkeypatch.setattr(capture_times, "_head_of_file", lambda path: read.append(head(path)) or read[-1])
    assert sync(station_of(tmp_path), SyncState(), Turn()).synced == 3
    assert [len(each) for each in read] == [HEAD_BYTES]


@pytest.mark.django_db
def test_link_that_replaced_a_file_is_not_followed(tmp_path):
    (tmp_path / "secret.jpg").write_bytes(picture(taken="2026:06:02 01:00:00"))
    (tmp_path / "IMG_1.jpg").symlink_to(tmp_path / "secret.jpg")
    assert capture_times._head_of_file(tmp_path / "IMG_1.jpg") == b""


@pytest.mark.django_db
@pytest.mark.processes
def test_first_bytes_of_an_object_are_asked_for(settings):
    settings.ANTENNA_ALLOWED_ENDPOINTS = ("127.0.0.1",)
    large = picture(taken="2026:06:02 01:00:00") + b"\0" * (2 * HEAD_BYTES)
    with s3_server.running() as server:
        bucket = server.make_bucket("exif-times")
        litter = (("20260601220001.jpg", b"<html>"), ("@eaDir/20260601220002.jpg", picture()))
        for name, data in (("IMG_1.jpg", large), ("IMG_2.jpg", picture()), ("20260601220000.jpg", picture())) + litter:
            httpx.put(f"{server.endpoint}/{bucket}/{name}", content=data).raise_for_status()
        source = S3StorageSource.objects.create(
            name="Bucket", bucket=bucket, endpoint_url=server.endpoint, access_key="id", secret_key="secret"
        )
        station = factories.station(data_source=source, time_zone="UTC")
        assert len(capture_times._head_of_object(bucket_client(source), bucket, "IMG_1.jpg")) == HEAD_BYTES
        assert capture_times._head_of_object(bucket_client(source), bucket, "gone.jpg") == b""
        state = sync(station, SyncState(), Turn())
        names = capture_times.in_names(station)
    assert (names["IMG_1.jpg"], len(names)) == (capture_times.UNNAMED, 4)
    assert (state.synced, state.failed) == (2, 3)
    assert {"no picture by its first bytes", "thumbnail or index of a file server"} <= set(state.skipped)
    assert SourceImage.objects.get(path="IMG_1.jpg").timestamp == datetime(2026, 6, 2, 1, tzinfo=UTC)
