"""Crops."""

import re
from unittest.mock import Mock

import pytest
from django.core.files.base import ContentFile
from django.core.files.storage import default_storage
from PIL import Image

from ami.governor import memory_limit
from ami.governor.memory_limit import Room
from ami.main.models import Detection
from ami.main.services.picture_memory import MARGIN_KIB
from ami.ml.services import crops
from ami.ml.tasks import create_detection_images
from tests.support.product import image_files
from tests.support.product.job_setup import SIZE, World


@pytest.mark.parametrize(
    ("bbox", "expected"),
    [
        ([10, 20, 30, 40], (10, 20, 30, 40)),
        ([30, 40, 10, 20], (10, 20, 30, 40)),
        ([-5, -5, 10.2, 10.2], (0, 0, 11, 11)),
        ([190, 110, 500, 500], (190, 110, 200, 120)),
        ([500, 500, 600, 600], (199, 119, 200, 120)),
        ([50, 50, 50, 50], (50, 50, 51, 51)),
    ],
)
def test_a_box_is_clamped_to_the_picture(bbox, expected) -> None:
    assert crops.clamped(bbox, *SIZE) == expected


def detect(world: World, capture, *boxes) -> list[Detection]:
    return [
        Detection.objects.create(source_image=capture, detection_algorithm=world.detector, bbox=box) for box in boxes
    ]


def test_every_box_gets_a_crop_once(world: World, monkeypatch) -> None:
    [capture] = world.captures(1)
    detections = detect(world, capture, [0, 0, 20, 10], [5, 5, 35, 45])
    assert crops.make_crops([capture.pk]) == 2
    for detection, size in zip(detections, [(20, 10), (30, 40)], strict=True):
        detection.refresh_from_db()
        assert re.fullmatch(rf"detections/{detection.pk}-[0-9a-f]{{32}}\.jpg", detection.path)
        with default_storage.open(detection.path) as file:
            assert Image.open(file).size == size
    monkeypatch.setattr(crops, "read", lambda image: pytest.fail("was opened again"))
    assert crops.make_crops([capture.pk]) == 0


def test_hazard_8_a_null_marker_opens_no_picture(world: World, monkeypatch) -> None:
    [capture] = world.captures(1)
    detect(world, capture, None)
    monkeypatch.setattr(crops, "read", lambda image: pytest.fail("was opened"))
    assert crops.make_crops([capture.pk]) == 0
    assert crops.captures_without_crops([capture.pk]) == {}


def test_unreadable_capture_is_reported_and_the_others_are_cropped(world: World) -> None:
    good, missing, broken = world.captures(3)
    for capture in (good, missing, broken):
        detect(world, capture, [0, 0, 20, 10])
    default_storage.delete(missing.path)
    with default_storage.open(broken.path, "wb") as file:
        file.write(b"no picture")
    with pytest.raises(crops.CropsFailed, match=f"capture {missing.pk}.*capture {broken.pk}.*not a picture") as failure:
        crops.make_crops([good.pk, missing.pk, broken.pk])
    assert crops.captures_without_crops([good.pk, missing.pk, broken.pk]) == {good.project_id: [missing.pk, broken.pk]}
    assert not isinstance(failure.value, crops.CropsRefused), "the missing file may reappear"


def replace(capture, content: bytes) -> None:
    default_storage.delete(capture.path)
    default_storage.save(capture.path, ContentFile(content))


def test_oversized_capture_is_refused_and_the_others_are_cropped(world: World) -> None:
    good, large = world.captures(2)
    for capture in (large, good):
        detect(world, capture, [0, 0, 20, 10])
    replace(large, image_files.header_of_jpeg(9_500, 9_500))
    with pytest.raises(crops.CropsRefused, match=rf"^capture {large.pk}: .*90\.2 mega.*MEGAPIXELS=89"):
        crops.make_crops([large.pk, good.pk])
    assert crops.captures_without_crops([good.pk, large.pk]) == {good.project_id: [large.pk]}


def test_capture_for_which_memory_runs_out_costs_no_other_its_crops(world: World, monkeypatch) -> None:
    large, good = world.captures(2)
    for capture in (large, good):
        detect(world, capture, [0, 0, 20, 10])
    read = crops.read
    monkeypatch.setattr(crops, "read", lambda image: bytearray(2**62) if image == large else read(image))
    with pytest.raises(crops.CropsFailed, match=f"^capture {large.pk}: MemoryError$"):
        crops.make_crops([large.pk, good.pk])
    assert crops.captures_without_crops([good.pk, large.pk]) == {good.project_id: [large.pk]}


@pytest.mark.parametrize(
    ("room", "tries"), [(Room(8 * 1024, 16 * 1024), 1), (Room(8 * 1024, 512 * 1024), 6)], ids=["never", "not now"]
)
def test_picture_that_no_process_could_decode_is_not_retried(world: World, monkeypatch, room: Room, tries: int) -> None:
    [capture] = world.captures(1)
    detect(world, capture, [0, 0, 20, 10])
    asked = Mock(return_value=room)
    monkeypatch.setattr(memory_limit, "room", asked)
    ended = create_detection_images.apply(kwargs={"source_image_ids": [capture.pk]})
    assert (ended.state, asked.call_count) == ("FAILURE", tries)
    assert f"capture {capture.pk}: the picture has 200 x 120 pixels" in str(ended.result)
    assert "its process may still take 8 MiB" in str(ended.result)


@pytest.mark.parametrize(("box", "is_made"), [([-9, 0, 1e9, 3000], True), ([0, 0, 2999, 3000], False)])
def test_memory_of_a_large_crop_is_counted_except_of_the_whole_picture(world: World, monkeypatch, box, is_made) -> None:
    [capture] = world.captures(1)
    detect(world, capture, [0, 0, 20, 10], box)
    replace(capture, image_files.jpeg((3000, 3000)))
    twice = 2 * 4 * 3000 * 3000 // 1024 + MARGIN_KIB
    monkeypatch.setattr(memory_limit, "room", lambda: Room(twice - 1024, twice - 1024))
    monkeypatch.setattr(Image.Image, "crop", small_crop)
    if is_made:
        assert crops.make_crops([capture.pk]) == 2
        with default_storage.open(Detection.objects.latest("pk").path) as file:
            assert Image.open(file).size == (3000, 3000)
    else:
        with pytest.raises(crops.CropsRefused, match="decoding takes 100 MiB"):
            crops.make_crops([capture.pk])


def small_crop(picture: Image.Image, box: tuple[int, int, int, int]) -> Image.Image:
    assert box[2] - box[0] < 1000, "was copied"
    return picture.resize((box[2] - box[0], box[3] - box[1]))


@pytest.mark.parametrize(
    ("content", "reason", "tries"),
    [
        (image_files.header_of_jpeg(9_500, 9_500), "megapixels", 1),
        (image_files.jpeg((200, 120))[:-300], "is broken", 6),
    ],
    ids=["too large", "truncated"],
)
def test_refused_picture_is_not_retried_and_a_broken_one_is(
    world: World, monkeypatch, content: bytes, reason: str, tries: int
) -> None:
    [capture] = world.captures(1)
    detect(world, capture, [0, 0, 20, 10])
    replace(capture, content)
    opened = Mock(side_effect=crops.open_picture)
    monkeypatch.setattr(crops, "open_picture", opened)
    ended = create_detection_images.apply(kwargs={"source_image_ids": [capture.pk]})
    assert (ended.state, opened.call_count) == ("FAILURE", tries)
    assert f"capture {capture.pk}: the picture" in str(ended.result)
    assert reason in str(ended.result)


def test_a_crop_that_is_made_twice_is_the_same_file(world: World) -> None:
    [capture] = world.captures(1)
    [detection] = detect(world, capture, [0, 0, 20, 10])
    crops.make_crops([capture.pk])
    first = Detection.objects.get().path
    Detection.objects.update(path="")
    crops.make_crops([capture.pk])
    assert Detection.objects.get().path == first
    assert [name for name in default_storage.listdir("detections")[1] if name.startswith(f"{detection.pk}-")] == [
        first.removeprefix("detections/")
    ]


def test_a_crops_name_needs_the_secret_key(world: World, settings) -> None:
    [capture] = world.captures(1)
    [detection] = detect(world, capture, [0, 0, 20, 10])
    name = crops.name_of(detection)
    settings.SECRET_KEY = "another"
    assert crops.name_of(detection) != name
