"""Opening pictures: format and size are checked before decoding."""

import random
from contextlib import suppress

import pytest
from PIL import Image, ImageFile

from ami.ml.errors import CaptureUnreadable, PictureRefused
from ami.ml.services.pictures import open_picture
from tests.support.product.image_files import header_of_jpeg, header_of_png, jpeg, saved

SMALL = Image.new("RGB", (30, 20), (9, 9, 9))


@pytest.fixture
def nothing_is_decoded(monkeypatch):
    monkeypatch.setattr(ImageFile.ImageFile, "load", lambda self: pytest.fail("was decoded"))


@pytest.mark.parametrize("size", [(9_500, 9_500), (13_000, 13_000), (65_000, 65_000)])
@pytest.mark.parametrize("header", [header_of_jpeg, header_of_png])
def test_too_many_pixels_are_refused_before_decoding(nothing_is_decoded, header, size):
    with pytest.raises(PictureRefused, match="pixels"):
        open_picture(header(*size))


def test_limit_is_a_setting(settings, nothing_is_decoded):
    settings.ANTENNA_MAX_MEGAPIXELS = 1
    with pytest.raises(PictureRefused, match=r"1200 x 900 pixels \(1\.1 mega.*ANTENNA_MAX_MEGAPIXELS=1"):
        open_picture(header_of_png(1_200, 900))


@pytest.mark.parametrize("kind", ["GIF", "TIFF", "WEBP", "BMP", "ICO", "PPM", "TGA", "PCX", "JPEG2000"])
def test_other_formats_are_never_opened(nothing_is_decoded, kind):
    with pytest.raises(PictureRefused, match="not a picture in JPEG or PNG"):
        open_picture(saved(SMALL, kind))


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "I;16"])
def test_every_kind_of_png_is_opened_as_rgb(mode):
    picture = open_picture(saved(Image.new(mode, (30, 20)), "PNG"))
    assert (picture.mode, picture.size) == ("RGB", (30, 20))


@pytest.mark.parametrize("kind", ["PNG", "MPO"])
def test_first_of_several_frames_is_opened(kind):
    frames = saved(SMALL, kind, save_all=True, append_images=[Image.new("RGB", (30, 20), (200, 0, 0))] * 3)
    assert open_picture(frames).getpixel((5, 5)) == (9, 9, 9)


def test_absurd_exif_does_no_harm():
    exif = Image.Exif()
    exif[0x0112], exif[0x010E] = 999, "x" * 60_000
    assert open_picture(saved(SMALL, "JPEG", exif=exif)).size == (30, 20)
    broken = saved(SMALL, "JPEG", exif=b"Exif\0\0MM\0*" + b"\xff" * 60_000)
    assert open_picture(broken).size == (30, 20)


def test_truncated_picture_is_unreadable():
    for content in (jpeg((300, 200)), saved(SMALL.resize((300, 200)), "PNG")):
        with pytest.raises(CaptureUnreadable, match="the picture is broken"):
            open_picture(content[: len(content) * 2 // 3])


def test_no_mutation_of_a_picture_raises_anything_else():
    chance = random.Random(7)
    exif = Image.Exif()
    exif[0x010E] = "a moth"
    picture = Image.radial_gradient("L").resize((90, 60))
    originals = [saved(picture, kind, exif=exif) for kind in ("JPEG", "PNG")] + [saved(picture.convert("P"), "PNG")]
    opened = 0
    for number in range(600):
        content = bytearray(originals[number % 3])
        for _ in range(chance.randint(1, 6)):
            content[chance.randrange(len(content))] = chance.randrange(256)
        with suppress(PictureRefused, CaptureUnreadable):
            open_picture(bytes(content))
            opened += 1
    assert 0 < opened < 600
