"""The detector finds the drawn moths, and nothing on an empty sheet."""

import io
from dataclasses import dataclass

import numpy as np
import pytest
from PIL import Image

from demo.evaluate import score, total
from demo.ground_truth import DrawnFrame
from demo.moths import SPECIES
from demo.renderer import draw_capture, draw_nights
from demo.sheets import Sheet
from processing_service import detector
from processing_service.classifier import SPECIES_LABELS, features_of, is_moth, species_of
from processing_service.detector import Insect, detect
from processing_service.pictures import Picture, open_picture
from tests.support.soak import soak


def opened(image):
    held = io.BytesIO()
    image.save(held, "JPEG", quality=90)
    return open_picture(held.getvalue())


@dataclass(frozen=True)
class Seen:
    """A frame, its picture, and the detected insects."""

    frame: DrawnFrame
    picture: Picture
    found: list[Insect]


#: Of one night.
FRAMES = soak(6, 12)


@pytest.fixture(scope="module", params=soak([5], [1, 5, 11]))
def night(request, tmp_path_factory):
    """A drawn night; the detector runs once per frame."""
    folder = tmp_path_factory.mktemp("night")
    drawn = draw_nights(folder, nights=1, frames_per_night=FRAMES, seed=request.param)
    pictures = [open_picture((drawn.folder / frame.file).read_bytes()) for frame in drawn.frames]
    return [Seen(frame, picture, detect(picture)) for frame, picture in zip(drawn.frames, pictures, strict=True)]


def test_detector_has_high_recall_and_precision(night):
    found = total(score([moth.box for moth in seen.frame.moths], [one.box for one in seen.found]) for seen in night)
    assert found.true > 25 * FRAMES / 12
    assert found.recall >= 0.95
    assert found.precision >= 0.95


def test_empty_sheet_has_no_detections():
    rng = np.random.default_rng(2)
    bare, moths = draw_capture(Sheet((1280, 720), rng), [], rng)
    assert moths == []
    assert detect(opened(bare)) == []


def test_uniform_picture_has_no_detections():
    assert detect(opened(Image.new("RGB", (640, 480), "white"))) == []


@pytest.mark.parametrize("size", [(1, 1), (3, 200), (200, 3), (17, 17)])
def test_tiny_picture_raises_no_error(size):
    assert isinstance(detect(opened(Image.effect_noise(size, 80).convert("RGB"))), list)


def test_narrow_picture_is_not_enlarged(monkeypatch):
    sizes = []

    def recorded(layer, *arguments, **options):
        sizes.append(layer.shape)
        return percentile_filter(layer, *arguments, **options)

    percentile_filter = detector.ndimage.percentile_filter
    monkeypatch.setattr(detector.ndimage, "percentile_filter", recorded)
    assert isinstance(detect(opened(Image.effect_noise((3, 200), 80).convert("RGB"))), list)
    assert set(sizes) == {(200, 3)}


def test_boxes_are_in_pixels_of_the_full_size_picture():
    sheet = Image.new("RGB", (4096, 2160), (225, 225, 220))
    sheet.paste((60, 40, 30), (3000, 1500, 3300, 1700))
    [found] = detect(opened(sheet))
    assert found.box == pytest.approx((3000, 1500, 3300, 1700), abs=8)


def test_object_out_of_focus_is_not_an_insect():
    y, x = np.mgrid[0:720, 0:1280]
    blur = 120 * np.exp(-(((x - 640) / 70) ** 2 + ((y - 360) / 70) ** 2))
    grey = (220 - blur).astype(np.uint8)
    assert detect(opened(Image.fromarray(np.dstack([grey] * 3)))) == []


def test_scores_are_a_softmax_of_the_logits(night):
    seen = next(seen for seen in night if seen.frame.moths)
    features = features_of(seen.picture, seen.found[0])
    for classification in (is_moth(features), species_of(features)):
        powers = np.exp(np.array(classification.logits))
        assert sum(classification.scores) == pytest.approx(1)
        assert classification.scores == pytest.approx(list(powers / powers.sum()))
        assert classification.label == classification.labels[int(np.argmax(classification.scores))]


def test_species_and_moths_are_classified_by_their_features(night):
    right, moths, all_of_them = 0, 0, 0
    for seen in night[::2]:
        for found in seen.found:
            near = [m for m in seen.frame.moths if np.abs(np.subtract(m.box, found.box)).max() < 12]
            if near:
                features = features_of(seen.picture, found)
                all_of_them += 1
                right += species_of(features).label == near[0].species
                moths += is_moth(features).label == "Moth"
    assert all_of_them > 8
    assert right / all_of_them >= 0.9
    assert moths / all_of_them >= 0.9


def test_classifier_has_all_drawn_species():
    assert set(SPECIES_LABELS) == {species.name for species in SPECIES}
