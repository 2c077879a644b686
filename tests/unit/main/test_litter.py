"""Files beside pictures that are no captures."""

import os
from pathlib import Path

import pytest

from ami.main.models import SourceImage
from ami.main.services import capture_times, sources, station_sync
from ami.main.services.capture_times import SMALL_BYTES
from ami.main.services.litter import is_picture, litter_of
from ami.main.services.sources import SourceError
from ami.main.services.station_sync import SyncState, sync
from tests.support.product.factories import Turn
from tests.support.product.image_files import SMALLEST_JPEG
from tests.unit.main.test_station_sync import station_of

NAME = "20220810232637.jpg"
LITTER = {
    f"._{NAME}": "hidden",
    f".{NAME}.Xa3b4c": "hidden",
    f".cache/{NAME}": "hidden",
    f"~${NAME}": "hidden",
    f".Trashes/501/{NAME}": "trash",
    f".Trash-1000/files/{NAME}": "trash",
    f"$RECYCLE.BIN/S-1-5/$R{NAME}": "trash",
    f"night/#recycle/{NAME}": "trash",
    f"@Recycle/{NAME}": "trash",
    f"@eaDir/{NAME}/SYNOPHOTO_THUMB_XL.jpg": "thumbnail",
    f"@EADIR/{NAME}": "thumbnail",
    f".@__thumb/default{NAME}": "thumbnail",
    f".thumbnails/{NAME}": "thumbnail",
    "a/Thumbs.db": "thumbnail",
    f"thumbnail/{NAME}": "thumbnail",
    f"FOUND.001/{NAME}": "system",
    f"lost+found/{NAME}": "system",
    f"System Volume Information/{NAME}": "system",
    f"__MACOSX/{NAME}": "system",
    f"#snapshot/{NAME}": "system",
    f".snapshot/{NAME}": "hidden",
    f"{NAME}.part": "unfinished",
    f"{NAME}.TMP": "unfinished",
    f"{NAME}~": "unfinished",
    f"{NAME}.xmp": "unfinished",
    f"{NAME}_original": "unfinished",
    "20220810232637.csv": "another kind",
    "20220810232637.webm": "another kind",
    "20220810232637.MP4": "another kind",
    "20220810232637.sync-conflict-20220811-010203-ABC.jpg": "unfinished",
    "20220810232637_conflict-20220811-010203.jpg": "unfinished",
    "20220810232637 (conflicted copy 2022-08-11 010203).jpg": "unfinished",
    "20220810232637 (Ann's conflicted copy 2022-08-11).jpg": "unfinished",
}


def test_litter_has_its_reason():
    assert {path: reason for path, reason in LITTER.items() if reason not in litter_of(path, 20_000)} == {}


@pytest.mark.parametrize("path", [NAME, f"trap #3/{NAME}", f"@home/{NAME}", f"$1/{NAME}", f"a.b/{NAME}", f"{NAME}.png"])
def test_ordinary_picture_is_no_litter(path):
    assert litter_of(path, 1) == ""
    assert litter_of(path, 0) == "empty file"


@pytest.mark.parametrize(
    "head",
    [b"<html>502 Bad Gateway</html>", b'{"error": 1}', b"\0" * 64, b"PK\3\4", b"\xff\xfe<\0h\0", b"GIF is no", b""],
)
def test_first_bytes_of_no_picture_are_none(head):
    assert not is_picture(head)


@pytest.mark.parametrize(
    "head", [SMALLEST_JPEG, b"\x89PNG\r\n\x1a\n", b"II*\0", b"MM\0*", b"RIFF\1\2\3\4WEBP", b"GIF89a"]
)
def test_first_bytes_of_a_picture_are_one(head):
    assert is_picture(head)


def write(folder, path, data):
    (folder / path).parent.mkdir(parents=True, exist_ok=True)
    (folder / path).write_bytes(data)


@pytest.fixture
def litter(tmp_path, settings):
    settings.ANTENNA_LOCAL_SOURCE_ROOTS = [str(tmp_path)]
    for path in LITTER:
        write(tmp_path, path, SMALLEST_JPEG)
    write(tmp_path, "empty-20220810232649.jpg", b"")
    write(tmp_path, "html-20220810232651.jpg", b"<html><body>502 Bad Gateway</body></html>")
    write(tmp_path, NAME, SMALLEST_JPEG)
    return tmp_path


@pytest.mark.django_db
@pytest.mark.parametrize(
    "regex",
    ["", pytest.param(".*", marks=pytest.mark.processes), pytest.param(r".*\.jpg", marks=pytest.mark.processes)],
)
def test_litter_becomes_no_capture_and_is_counted_by_reason(litter, regex):
    state = sync(station_of(litter, data_source_regex=regex), SyncState(), Turn())
    assert [capture.path for capture in SourceImage.objects.all()] == [NAME]
    assert state.failed == sum(entry["count"] for entry in state.skipped.values())
    assert {"empty file", "no picture by its first bytes", "in a trash folder"} <= set(state.skipped)
    if regex == ".*":
        assert state.failed == len(LITTER) + 2


@pytest.mark.django_db
def test_only_folders_below_the_stations_own_are_litter(litter):
    station = station_of(litter, data_source_subdir=".cache")
    assert (sync(station, SyncState(), Turn()).synced, SourceImage.objects.get().path) == (1, f".cache/{NAME}")


@pytest.mark.django_db
@pytest.mark.sqlite
def test_closed_folder_stops_a_sync_unless_it_is_litter(tmp_path, settings, monkeypatch):
    settings.ANTENNA_LOCAL_SOURCE_ROOTS = [str(tmp_path)]
    for path in (NAME, f"lost+found/{NAME}", f"night/{NAME}"):
        write(tmp_path, path, SMALLEST_JPEG)
    closed, scandir = {"lost+found"}, os.scandir

    def scan(folder):  # The tests may run as root, who may read all.
        if Path(folder).name in closed:
            raise PermissionError(13, "Permission denied", str(folder))
        return scandir(folder)

    monkeypatch.setattr(sources.os, "scandir", scan)
    assert sync(station_of(tmp_path), SyncState(), Turn()).synced == 2
    closed.add("night")
    with pytest.raises(SourceError, match="night cannot be read"):
        sync(station_of(tmp_path), SyncState(), Turn())


@pytest.mark.django_db
def test_larger_file_with_a_time_in_its_name_is_not_opened(tmp_path, settings, monkeypatch):
    settings.ANTENNA_LOCAL_SOURCE_ROOTS = [str(tmp_path)]
    write(tmp_path, NAME, bytes(SMALL_BYTES))
    write(tmp_path, "20220810232638.jpg", bytes(SMALL_BYTES - 1))
    opened, head = [], capture_times._head_of_file
    monkeypatch.setattr(capture_times, "_head_of_file", lambda path: opened.append(path.name) or head(path))
    assert sync(station_of(tmp_path), SyncState(), Turn()).synced == 1
    assert opened == ["20220810232638.jpg"]


@pytest.mark.django_db
@pytest.mark.sqlite
def test_report_has_three_examples_of_each_reason_over_all_slices(tmp_path, settings, monkeypatch):
    settings.ANTENNA_LOCAL_SOURCE_ROOTS = [str(tmp_path)]
    monkeypatch.setattr(station_sync, "BATCH", 1)
    for number in range(5):
        write(tmp_path, f"moth {number}.jpg", SMALLEST_JPEG)
    write(tmp_path, b"\xff.jpg".decode("utf-8", "surrogateescape"), SMALLEST_JPEG)
    write(tmp_path, "20010101000000.jpg", SMALLEST_JPEG)
    write(tmp_path, "20990101000000.jpg", SMALLEST_JPEG)
    station, state = station_of(tmp_path), SyncState()
    while not state.finished:
        state = SyncState(**sync(station, state, Turn(1)).as_dict())
    assert state.lines() == [
        ("INFO", "2 captures synced, 6 files skipped."),
        (
            "INFO",
            "Skipped, no time in the name or the EXIF data: 5, such as moth 0.jpg, moth 1.jpg, moth 2.jpg.",
        ),
        ("INFO", "Skipped, path that cannot be stored: 1, such as \\udcff.jpg."),
        ("WARNING", "Check the camera's clock, times before 2010: 1, such as 20010101000000.jpg."),
        ("WARNING", "Check the camera's clock, times in the future: 1, such as 20990101000000.jpg."),
    ]
