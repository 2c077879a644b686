"""Picture files for tests: complete ones, and ones whose header claims any size."""

import io
import struct
import zlib

from PIL import Image

#: A file that begins like a picture.
SMALLEST_JPEG = b"\xff\xd8\xff\xe0\xff\xd9"


def jpeg(size: tuple[int, int]) -> bytes:
    return saved(Image.radial_gradient("L").resize(size).convert("RGB"), "JPEG")


def saved(image: Image.Image, kind: str, **options) -> bytes:
    held = io.BytesIO()
    image.save(held, kind, **options)
    return held.getvalue()


def header_of_jpeg(width: int, height: int) -> bytes:
    """A small JPEG whose header claims this size."""
    content = jpeg((16, 16))
    frame = content.index(b"\xff\xc0")
    return content[: frame + 5] + struct.pack(">HH", height, width) + content[frame + 9 :]


def header_of_png(width: int, height: int) -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    rows = chunk(b"IDAT", zlib.compress(b"\0" * 1000))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + rows + chunk(b"IEND", b"")
