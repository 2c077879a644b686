"""Sync of a station with a folder."""

from datetime import UTC, datetime

import pytest

from ami.main.models import S3StorageSource, SourceImage
from ami.main.services import station_sync
from ami.main.services.sources import SourceError, pictures
from ami.main.services.station_sync import SyncState, sync
from tests.support.product import factories
from tests.support.product.factories import Turn
from tests.support.product.image_files import SMALLEST_JPEG
from tests.support.product.stale import marked

pytestmark = pytest.mark.django_db


@pytest.fixture
def folder(tmp_path, settings):
    settings.ANTENNA_LOCAL_SOURCE_ROOTS = [str(tmp_path)]
    for name in ("20260601220000.jpg", "a/20260601230000.JPG", "a.b/20260602000000.jpeg", "moth.jpg", "notes.txt"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(SMALLEST_JPEG)
    return tmp_path


def station_of(folder, **fields):
    source = S3StorageSource.objects.create(
        name="Folder", endpoint_url=f"file://{folder}", public_base_url="https://pictures.example/"
    )
    return factories.station(data_source=source, **fields)


def test_files_become_captures_with_station_time_and_url(folder):
    station = station_of(folder, time_zone="Europe/Berlin")
    state = sync(station, SyncState(), Turn())
    assert (state.synced, state.failed, state.finished) == (3, 1, True)
    first = SourceImage.objects.get(path="20260601220000.jpg")
    assert first.timestamp == datetime(2026, 6, 1, 20, 0, tzinfo=UTC)
    assert first.public_url() == "https://pictures.example/20260601220000.jpg"
    assert first.size == len(SMALLEST_JPEG)
    assert marked() == {("deployment", station.pk), ("sessions", station.pk)}


@pytest.mark.sqlite
def test_paths_come_in_the_order_of_whole_paths(folder):
    paths = [found.path for found in pictures(station_of(folder))]
    assert paths == sorted(paths)
    assert len(paths) == 4


@pytest.mark.sqlite
def test_listing_resumes_after_any_path(folder):
    station = station_of(folder)
    paths = [found.path for found in pictures(station)]
    for index, path in enumerate(paths):
        assert [found.path for found in pictures(station, path)] == paths[index + 1 :]


@pytest.mark.sqlite
def test_syncing_twice_changes_nothing(folder):
    station = station_of(folder)
    sync(station, SyncState(), Turn())
    before = set(SourceImage.objects.values_list("pk", "path"))
    sync(station, SyncState(), Turn())
    assert set(SourceImage.objects.values_list("pk", "path")) == before


@pytest.mark.sqlite
def test_slices_have_the_same_result_as_one_run(folder, monkeypatch):
    monkeypatch.setattr(station_sync, "BATCH", 1)
    station, state, slices = station_of(folder), SyncState(), 0
    while not state.finished:
        state = SyncState(**sync(station, state, Turn(1)).as_dict())
        slices += 1
    assert slices == 5
    assert (state.synced, state.failed) == (3, 1)
    assert SourceImage.objects.count() == 3


def test_a_subfolder_is_a_stations_own(folder):
    station = station_of(folder, data_source_subdir="a")
    sync(station, SyncState(), Turn())
    assert [capture.path for capture in SourceImage.objects.all()] == ["a/20260601230000.JPG"]


def test_a_name_that_is_not_utf_8_is_counted_as_failed(folder):
    (folder / b"20260601220000-\xff.jpg".decode("utf-8", "surrogateescape")).write_bytes(b"")
    assert sync(station_of(folder), SyncState(), Turn()).failed == 2


def test_name_with_a_narrow_space_before_pm_is_a_capture(folder):
    (folder / "Screenshot 2026-06-01 at 11.26.37\u202fPM.png").write_bytes(SMALLEST_JPEG)
    sync(station_of(folder), SyncState(), Turn())
    assert SourceImage.objects.get(path__startswith="Screen").timestamp == datetime(2026, 6, 1, 23, 26, 37, tzinfo=UTC)


def test_a_folder_outside_the_allowed_ones_is_refused(folder, settings):
    settings.ANTENNA_LOCAL_SOURCE_ROOTS = [str(folder / "a")]
    with pytest.raises(SourceError, match="ANTENNA_LOCAL_SOURCE_ROOTS"):
        sync(station_of(folder), SyncState(), Turn())


@pytest.mark.parametrize("subdir", ["..", "a/../..", "missing"])
def test_a_subfolder_outside_its_source_or_missing_is_refused(folder, subdir):
    with pytest.raises(SourceError):
        sync(station_of(folder, data_source_subdir=subdir), SyncState(), Turn())


@pytest.mark.processes
def test_a_pattern_that_does_not_compile_is_refused_by_name(folder):
    with pytest.raises(SourceError, match="data_source_regex"):
        sync(station_of(folder, data_source_regex="("), SyncState(), Turn())


@pytest.mark.processes
def test_endless_backtracking_is_stopped_and_reported(folder):
    (folder / f"{'a' * 60}!.jpg").write_bytes(SMALLEST_JPEG)
    with pytest.raises(SourceError, match="takes too long"):
        sync(station_of(folder, data_source_regex=r"^((a|aa)+)+\1z"), SyncState(), Turn())


def test_a_station_without_a_source_is_refused():
    with pytest.raises(SourceError, match="no storage source"):
        sync(factories.station(), SyncState(), Turn())
