"""Drawn nights are deterministic by seed, and their ground truth matches their pictures."""

import re

import pytest
from PIL import Image

from demo.ground_truth import read_manifest
from demo.renderer import draw_nights

SMALL = {"frames_per_night": 8, "size": (640, 360)}


@pytest.fixture(scope="module")
def manifest(tmp_path_factory):
    return draw_nights(tmp_path_factory.mktemp("nights"), seed=3, **SMALL)


def test_the_same_seed_draws_the_same_bytes(manifest, tmp_path):
    again = draw_nights(tmp_path, seed=3, **SMALL)
    for one, other in zip(manifest.frames, again.frames, strict=True):
        assert one == other
        assert (manifest.folder / one.file).read_bytes() == (tmp_path / other.file).read_bytes()


def test_another_seed_draws_other_moths(manifest, tmp_path):
    other = draw_nights(tmp_path, seed=4, **SMALL)
    assert [frame.moths for frame in other.frames] != [frame.moths for frame in manifest.frames]


def test_names_carry_the_time_from_dusk_till_dawn(manifest):
    for frame in manifest.frames:
        name = re.fullmatch(r"station-1/(\d{14})-\d+-snapshot\.jpg", frame.file)
        assert name[1] == f"{frame.taken_at:%Y%m%d%H%M%S}"
        assert frame.taken_at.hour >= 21 or frame.taken_at.hour < 5
    assert len({frame.night for frame in manifest.frames}) == 2


def test_boxes_lie_inside_the_picture_and_apart_from_each_other(manifest):
    for frame in manifest.frames:
        with Image.open(manifest.folder / frame.file) as picture:
            width, height = picture.size
        boxes = [moth.box for moth in frame.moths]
        for x1, y1, x2, y2 in boxes:
            assert 0 <= x1 < x2 <= width
            assert 0 <= y1 < y2 <= height
        for index, one in enumerate(boxes):
            for other in boxes[index + 1 :]:
                assert not (one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3])


def test_a_night_has_empty_frames_and_moths_that_stay(tmp_path):
    frames = draw_nights(tmp_path, nights=1, frames_per_night=60, size=(320, 320), seed=7).frames
    counts = [len(frame.moths) for frame in frames]
    individuals = [{moth.individual for moth in frame.moths} for frame in frames]
    assert 0 in counts
    assert 5 <= max(counts) <= 8
    assert any(one & other for one, other in zip(individuals, individuals[1:], strict=False))


def test_manifest_round_trips_through_its_file(manifest):
    assert read_manifest(manifest.folder) == manifest


def test_every_station_has_its_folder_and_progress_reaches_the_end(tmp_path):
    seen = []
    drawn = draw_nights(
        tmp_path, stations=2, nights=1, frames_per_night=2, size=(320, 320), progress=lambda *at: seen.append(at)
    )
    assert {frame.station for frame in drawn.frames} == {"station-1", "station-2"}
    assert seen == [(1, 4), (2, 4), (3, 4), (4, 4)]


def test_a_picture_too_small_for_moths_is_refused(tmp_path):
    with pytest.raises(ValueError, match="320"):
        draw_nights(tmp_path, size=(100, 100))
