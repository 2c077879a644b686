"""What decoding a picture takes of its process's memory, counted from the header, before anything is decoded."""

import struct
from typing import TYPE_CHECKING, NamedTuple

from ami.governor import memory_limit

if TYPE_CHECKING:
    from PIL import Image

#: Bytes per pixel of a decoded picture, by Pillow's mode: the other modes have four, also with one or three bands.
DECODED = {"1": 1, "L": 1, "P": 1, "I;16": 2}
#: Bytes per pixel while it is converted to RGB: both pictures at once.
CONVERTED = {"RGB": 4, "1": 5, "L": 5, "P": 5, "I;16": 5}
OTHER_DECODED, OTHER_CONVERTED = 4, 8

#: For what else a decoder and a crop take, and for Pillow's blocks of 16 MiB.
MARGIN_KIB = 32 * 1024


class Shortage(NamedTuple):
    """Why a picture is not decoded; ``is_lasting``: a fresh process of the same queue could not decode it either."""

    sentence: str
    is_lasting: bool


def shortage(picture: "Image.Image", size: tuple[int, int], cropped: int = 0) -> Shortage | None:
    """Return why the process has too little memory for an opened picture of this full size, None where it has enough.

    The picture may be about to be decoded at a fraction of its size, and crops of up to ``cropped`` pixels to be cut.
    """
    room = memory_limit.room()
    if room is None or (needed := needed_kib(picture, size, cropped)) <= room.now_kib:
        return None
    width, height = size
    kind = f"{picture.mode}, progressive" if _coefficient_bytes(picture, size) else picture.mode
    fresh = f", a fresh one {room.fresh_kib // 1024} MiB" if needed > room.fresh_kib else ""
    return Shortage(
        f"the picture has {width} x {height} pixels ({width * height / 1e6:.1f} megapixels, {kind}): decoding takes "
        f"{needed // 1024} MiB, and its process may still take {max(0, room.now_kib) // 1024} MiB{fresh}. Raise "
        "MAX_MEMORY_PER_CHILD_KIB of its queue (and its container's memory), or lower ANTENNA_MAX_MEGAPIXELS.",
        needed > room.fresh_kib,
    )


def needed_kib(picture: "Image.Image", size: tuple[int, int], cropped: int = 0) -> int:
    """Return what decoding the opened picture, converting it to RGB and a crop take at most at once, in KiB."""
    pixels = picture.width * picture.height
    decoded = pixels * DECODED.get(picture.mode, OTHER_DECODED) + _coefficient_bytes(picture, size)
    converted = pixels * CONVERTED.get(picture.mode, OTHER_CONVERTED)
    return max(decoded, converted, (pixels + cropped) * CONVERTED["RGB"]) // 1024 + MARGIN_KIB


def baseline_kib(megapixels: int) -> int:
    """Return what decoding a baseline JPEG in colour takes, in KiB."""
    return megapixels * 1_000_000 * CONVERTED["RGB"] // 1024 + MARGIN_KIB


def _coefficient_bytes(picture: "Image.Image", size: tuple[int, int]) -> int:
    """Return what a JPEG of several scans takes until its last one: two bytes for each coefficient, 0 for one scan."""
    if picture.format not in ("JPEG", "MPO") or not _has_several_scans(picture):
        return 0
    factors = [(across, down) for _, across, down, _ in picture.layer]  # type: ignore[attr-defined]
    most_across, most_down = (max(column) for column in zip(*factors, strict=True))
    # A component is kept in whole blocks of 8 x 8 of a whole unit.
    columns, rows = -(-size[0] // (8 * most_across)), -(-size[1] // (8 * most_down))
    return sum(columns * rows * across * down for across, down in factors) * 64 * 2


def _has_several_scans(picture: "Image.Image") -> bool:
    """Whether a JPEG is progressive, or its first scan lacks a component: Pillow has read to the end of its header."""
    if "progressive" in picture.info or picture.format == "MPO":  # Of several pictures Pillow stands at the first.
        return "progressive" in picture.info
    file, components = picture.fp, picture.layers  # type: ignore[attr-defined]
    end = file.tell()
    file.seek(end - 6 - 2 * components)
    whole = file.read(3) == struct.pack(">HB", 6 + 2 * components, components)
    file.seek(end)
    return not whole


def eight_bit(picture: "Image.Image") -> "Image.Image":
    """Return the picture with 8 bits per band: 16-bit grey becomes the upper byte, where Pillow cuts off above 255.

    Of 32-bit integers (an earlier Pillow's mode of the same files) what lies outside 16 bits is cut off. Other 16-bit
    files are decoded to their upper byte.
    """
    return picture.point(lambda level: level * (1 / 256)).convert("L") if picture.mode[0] == "I" else picture
