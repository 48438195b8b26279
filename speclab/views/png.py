"""A palette image as a PNG data URI, written by hand: the full mask is too large for anything else."""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Color = tuple[int, int, int, int]
"""Red, green, blue, opacity, 0…255."""


def png(pixels: NDArray[np.uint8], palette: Sequence[Color]) -> bytes:
    """`[rows, columns]` uint8 indices below 4 as a two-bit indexed PNG (PNG 1.2, sections 4.1 and 6)."""
    rows, columns = pixels.shape
    padded = np.zeros((rows, -(-columns // 4) * 4), dtype=np.uint8)
    padded[:, :columns] = pixels
    packed = padded[:, 0::4] << 6 | padded[:, 1::4] << 4 | padded[:, 2::4] << 2 | padded[:, 3::4]
    lines = np.concatenate([np.zeros((rows, 1), dtype=np.uint8), packed], axis=1)  # 0: no filter
    header = struct.pack(">IIBBBBB", columns, rows, 2, 3, 0, 0, 0)
    chunks = (
        (b"IHDR", header),
        (b"PLTE", bytes(part for color in palette for part in color[:3])),
        (b"tRNS", bytes(color[3] for color in palette)),
        (b"IDAT", zlib.compress(lines.tobytes(), 9)),
        (b"IEND", b""),
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(kind, data) for kind, data in chunks)


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def data_uri(pixels: NDArray[np.uint8], palette: Sequence[Color]) -> str:
    """The image inside a string, for `href`."""
    return "data:image/png;base64," + base64.b64encode(png(pixels, palette)).decode("ascii")
