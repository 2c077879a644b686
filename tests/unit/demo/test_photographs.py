"""Folders of photographs: usable pictures have their times, others are skipped with the reason."""

from datetime import datetime

import pytest
from PIL import Image

from ami.main.services.file_times import time_in_name
from demo.photographs import scan_photographs


def picture(path, size=(64, 48)):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.effect_noise(size, 60).convert("RGB").save(path)
    return path


@pytest.mark.parametrize(
    "name",
    [
        "141-20220916221959-snapshot",
        "20220916221959-00-16",
        "20220916221959-01-snapshot",
        "20220916221959",
    ],
)
def test_time_is_read_from_each_name_format(name):
    assert time_in_name(name) == datetime.fromisoformat("2022-09-16T22:19:59")


@pytest.mark.parametrize("name", ["moth", "20221316221959-1", "120220916221959-1", "2022091622-1"])
def test_a_name_without_a_date_has_no_time(name):
    assert time_in_name(name) is None


def test_each_subfolder_is_a_station_in_order_of_time(tmp_path):
    picture(tmp_path / "b" / "01-20230101000200-snapshot.jpg")
    picture(tmp_path / "b" / "02-20230101000100-snapshot.jpg")
    picture(tmp_path / "a" / "20230101000000-00-1.png")
    picture(tmp_path / "20230101000000-1-snapshot.jpg")
    stations = scan_photographs(tmp_path)
    assert [station.name for station in stations] == [tmp_path.name, "a", "b"]
    assert [one.taken_at.minute for one in stations[2].photographs] == [1, 2]
    assert (stations[1].photographs[0].width, stations[1].photographs[0].height) == (64, 48)


def test_unusable_file_is_skipped_with_its_reason(tmp_path):
    folder = tmp_path / "mixed"
    whole = picture(folder / "20230101000000-1-whole.jpg")
    picture(folder / "untimed.jpg")
    (folder / "20230101000001-1-cut.jpg").write_bytes(whole.read_bytes()[:-900])
    (folder / "20230101000002-1-empty.jpg").touch()
    (folder / "20230101000003-1-text.jpg").write_text("hello")
    (folder / "20230101000004-1-long.jpg").write_bytes(bytes(20_000))
    picture(folder / "20230101000005-1-wide.png", (200, 200))
    (folder / "README.md").write_text("words")
    [station] = scan_photographs(tmp_path, max_bytes=19_000, max_pixels=30_000)
    assert [one.path for one in station.photographs] == [whole]
    reasons = {one.path.name: one.reason for one in station.skipped}
    assert "not a picture" in reasons["README.md"]
    assert "no time" in reasons["untimed.jpg"]
    assert "truncated" in reasons["20230101000001-1-cut.jpg"]
    assert "0 bytes" in reasons["20230101000002-1-empty.jpg"]
    assert "not readable" in reasons["20230101000003-1-text.jpg"]
    assert "too large" in reasons["20230101000004-1-long.jpg"]
    assert "too large" in reasons["20230101000005-1-wide.png"]


def test_time_is_the_exif_datas_where_the_name_has_none(tmp_path):
    for number, offset in enumerate(("", "+02:00")):
        exif = Image.Exif()
        exif.get_ifd(0x8769).update({0x9003: f"2026:06:01 23:0{number}:00", 0x9011: offset})
        Image.new("RGB", (8, 8)).save(tmp_path / f"IMG_{number}.jpg", exif=exif)
    picture(tmp_path / "20260601T230200Z.jpg")
    [station] = scan_photographs(tmp_path)
    minutes = [one.taken_at.isoformat() for one in station.photographs]
    assert minutes == [f"2026-06-01T23:0{minute}:00" for minute in range(3)]


def test_dangling_link_does_not_stop_the_scan(tmp_path):
    (tmp_path / "20230101000000-1.jpg").symlink_to(tmp_path / "missing")
    [station] = scan_photographs(tmp_path)
    assert "not readable" in station.skipped[0].reason


def test_a_folder_that_is_missing_is_refused(tmp_path):
    with pytest.raises(NotADirectoryError, match="nowhere"):
        scan_photographs(tmp_path / "nowhere")
