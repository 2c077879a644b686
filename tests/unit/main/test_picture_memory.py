"""What decoding a picture takes, counted from its header: beside the real peaks, and before any is decoded."""

import io
import json
import os
from contextlib import ExitStack
from pathlib import Path

import pytest
from django.core.files.base import ContentFile
from django.core.files.storage import default_storage
from PIL import Image, ImageFile

from ami.governor import memory_limit
from ami.governor.memory_limit import Room
from ami.main.services import thumbnails
from ami.main.services.picture_memory import MARGIN_KIB, eight_bit, needed_kib
from ami.main.services.thumbnails import NoThumbnail, published_thumbnail, thumbnail
from ami.ml.errors import MemoryOccupied, PictureTooLarge
from ami.ml.services.pictures import open_picture
from processing_service.pictures import open_picture as service_picture
from tests.support import forked_python
from tests.support.product.http_services import files_served
from tests.support.product.image_files import header_of_jpeg, saved

MIB = 1024
SIDE = 3000
KINDS = {
    "RGB": ("RGB", "JPEG", {}),
    "RGB progressive": ("RGB", "JPEG", {"progressive": True}),
    "RGB progressive, whole chroma": ("RGB", "JPEG", {"progressive": True, "subsampling": 0}),
    "L progressive": ("L", "JPEG", {"progressive": True}),
    "CMYK": ("CMYK", "JPEG", {}),
    "CMYK progressive": ("CMYK", "JPEG", {"progressive": True}),
    **{f"{mode} PNG": (mode, "PNG", {"compress_level": 1}) for mode in ("1", "L", "LA", "P", "RGB", "RGBA", "I;16")},
}
#: Prints what opening each file adds to the process at its peak, in KiB, each in a child of its own.
PEAKS = """
import json, os, sys
import django; django.setup()
from ami.ml.services.pictures import open_picture

def kib(name):
    return int(open("/proc/self/status").read().split(name + ":")[1].split()[0])

def peak(path):
    data = open(path, "rb").read()
    open("/proc/self/clear_refs", "w").write("5")  # From here on VmHWM is the peak.
    before = kib("VmRSS")
    open_picture(data)
    return kib("VmHWM") - before

peaks = []
for path in sys.argv[1:]:
    ours, theirs = os.pipe()
    if not os.fork():
        os.write(theirs, str(peak(path)).encode())
        os._exit(0)
    os.close(theirs)  # Else a child that fails would be waited for without end.
    os.wait()
    peaks.append(int(os.read(ours, 99)))
print(json.dumps(peaks))
"""
#: Opens each file under a limit of so many KiB above what it has; prints what became of it.
LIMITED = """
import json, os, sys
import django; django.setup()
from ami.governor import memory_limit
from ami.governor.probes import process
from ami.ml.services.pictures import open_picture

memory_limit.impose(process.pss_kib(os.getpid()) + int(sys.argv[1]))
answers = []
for path in sys.argv[2:]:
    try:
        answers.append(open_picture(open(path, "rb").read()).mode)
    except Exception as error:
        answers.append(f"{type(error).__name__}: {error}")
print(json.dumps(answers))
"""


def drawn(kind: str, side: int = SIDE) -> bytes:
    mode, form, options = KINDS[kind]
    return saved(Image.new(mode, (side, side)), form, **options)


def opened(data: bytes) -> Image.Image:
    return Image.open(io.BytesIO(data))


def ran(program: str, *arguments: object) -> list:
    environment = {**os.environ, "DJANGO_SETTINGS_MODULE": "config.settings.test"}
    done = forked_python.run(["-c", program, *map(str, arguments)], env=environment)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pictures")
    for number, kind in enumerate(KINDS):
        (folder / str(number)).write_bytes(drawn(kind))
    return {kind: folder / str(number) for number, kind in enumerate(KINDS)}


def stored(name: str, content: bytes) -> str:
    return default_storage.save(name, ContentFile(content))


@pytest.mark.processes
def test_count_is_the_peak_of_every_kind_of_picture(files) -> None:
    peaks = dict(zip(KINDS, ran(PEAKS, *files.values()), strict=True))
    counted = {kind: needed_kib(opened(path.read_bytes()), (SIDE, SIDE)) - MARGIN_KIB for kind, path in files.items()}
    wrong = {
        kind: (counted[kind], peak) for kind, peak in peaks.items() if not -16 * MIB < counted[kind] - peak < 16 * MIB
    }
    assert wrong == {}


@pytest.mark.processes
def test_picture_beyond_the_limit_is_refused_others_are_opened(files) -> None:
    kinds = ["RGB", "CMYK progressive", "I;16 PNG", "RGBA PNG", "RGB"]
    answers = ran(LIMITED, MARGIN_KIB + 50 * MIB, *(files[kind] for kind in kinds))
    assert [answer.partition(":")[0] for answer in answers] == [
        "RGB",
        "PictureTooLarge",
        "RGB",
        "PictureTooLarge",
        "RGB",
    ]
    assert "3000 x 3000 pixels (9.0 megapixels, CMYK, progressive): decoding takes 134 MiB" in answers[1]
    assert "Raise MAX_MEMORY_PER_CHILD_KIB of its queue" in answers[1]


@pytest.fixture
def nothing_is_decoded(monkeypatch):
    monkeypatch.setattr(ImageFile.ImageFile, "load", lambda self: pytest.fail("was decoded"))


@pytest.mark.parametrize(
    ("room", "error", "fresh"),
    [
        (Room(40 * MIB, 50 * MIB), PictureTooLarge, ", a fresh one 50 MiB"),
        (Room(40 * MIB, 500 * MIB), MemoryOccupied, ""),
        (Room(-9, 500 * MIB), MemoryOccupied, ""),
    ],
)
def test_what_a_fresh_process_could_decode_is_tried_again(monkeypatch, nothing_is_decoded, room, error, fresh) -> None:
    monkeypatch.setattr(memory_limit, "room", lambda: room)
    with pytest.raises(error) as refused:
        open_picture(drawn("RGB progressive"))
    assert "3000 x 3000 pixels (9.0 megapixels, RGB, progressive): decoding takes 92 MiB" in str(refused.value)
    assert f"may still take {max(0, room.now_kib // MIB)} MiB{fresh}. Raise" in str(refused.value)
    assert "broken" not in str(refused.value)


def test_thumbnail_counts_a_progressive_picture_in_full(monkeypatch, nothing_is_decoded) -> None:
    path = stored("large.jpg", drawn("RGB progressive"))
    monkeypatch.setattr(memory_limit, "room", lambda: Room(MARGIN_KIB + 20 * MIB, MARGIN_KIB + 20 * MIB))
    with pytest.raises(NoThumbnail, match="9.0 megapixels, RGB, progressive"):
        thumbnail(path)


def test_thumbnail_of_a_large_baseline_picture_takes_little(monkeypatch) -> None:
    path = stored("baseline.jpg", drawn("RGB"))
    monkeypatch.setattr(memory_limit, "room", lambda: Room(MARGIN_KIB + 2 * MIB, MARGIN_KIB + 2 * MIB))
    assert opened(thumbnail(path)).size == (240, 240)


def test_hosts_that_stall_hold_some_threads_of_web_and_not_all(monkeypatch) -> None:
    monkeypatch.setattr(thumbnails, "FETCH_WAIT_SECONDS", 0.01)
    with files_served({"/1.jpg": drawn("RGB", 300)}) as url:
        with ExitStack() as stalled:
            for _ in range(thumbnails.MOST_FETCHES):
                stalled.enter_context(thumbnails._fetching)
            with pytest.raises(NoThumbnail, match="2 other published pictures are being fetched"):
                published_thumbnail(f"{url}/1.jpg")
        for _ in range(3):
            with pytest.raises(NoThumbnail, match="404"):
                published_thumbnail(f"{url}/2.jpg")
        assert opened(published_thumbnail(f"{url}/1.jpg")).size == (240, 240)


def test_jpeg_of_several_scans_counts_like_a_progressive_one() -> None:
    whole = header_of_jpeg(4000, 4000)
    start = whole.index(b"\xff\xda")
    split = whole[:start] + b"\xff\xda\0\x08\x01\x01\0\0\x3f\0" + whole[start + 14 :]
    added = needed_kib(opened(split), (4000, 4000)) - needed_kib(opened(whole), (4000, 4000))
    assert added == 4000 * 4000 * 3 // 1024


@pytest.mark.parametrize("kind", ["JPEG", "MPO"])
def test_counting_leaves_the_file_where_it_was(kind: str) -> None:
    more = {"save_all": True, "append_images": [Image.new("RGB", (30, 20))]} if kind == "MPO" else {}
    picture = opened(saved(Image.new("RGB", (30, 20), (9, 9, 9)), kind, **more))
    needed_kib(picture, picture.size)
    assert picture.getpixel((5, 5)) == (9, 9, 9)


def ramp(width: int, step: int) -> bytes:
    picture = Image.new("I;16", (width, 4))
    picture.putdata([x * step for x in range(width)] * 4)
    return saved(picture, "PNG")


def test_16_bit_grey_is_scaled_by_every_decoder() -> None:
    data = ramp(256, 256)
    assert [open_picture(data).getpixel((x, 1)) for x in range(256)] == [(x, x, x) for x in range(256)]
    assert [tuple(pixel) for pixel in service_picture(data).pixels[1]] == [(x, x, x) for x in range(256)]
    path = stored("ramp.png", ramp(1024, 64))
    small = opened(thumbnail(path))
    levels = [small.getpixel((x, 0))[0] for x in range(0, small.width, 10)]
    assert levels == sorted(levels)
    assert all(abs(level - x * 10 * 256 / small.width) < 8 for x, level in enumerate(levels))


@pytest.mark.parametrize(("level", "byte"), [(0, 0), (255, 0), (256, 1), (32_768, 128), (65_279, 254), (65_535, 255)])
def test_16_bit_level_becomes_its_upper_byte(level: int, byte: int) -> None:
    for mode in ("I;16", "I"):
        assert eight_bit(Image.new(mode, (1, 1), level)).getpixel((0, 0)) == byte


def test_32_bit_integers_outside_16_bits_are_cut_off() -> None:
    assert [eight_bit(Image.new("I", (1, 1), level)).getpixel((0, 0)) for level in (-300, 70_000)] == [0, 255]


def test_stored_pixels_are_what_every_decoder_shows() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    data = saved(Image.new("RGB", (100, 40)), "JPEG", exif=exif)
    theirs = service_picture(data)
    path = stored("turned.jpg", data)
    small = opened(thumbnail(path))
    assert open_picture(data).size == (theirs.width, theirs.height) == small.size == (100, 40)
    assert 0x0112 not in small.getexif()
