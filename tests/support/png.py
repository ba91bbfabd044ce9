# SPDX-License-Identifier: Apache-2.0
"""Decodes the pixels of PNG files, for tests of programs that write PNG. Every chunk must have the right checksum."""

import struct
import zlib

import numpy as np

PREDICTIONS = (lambda a, b, c: 0, lambda a, b, c: a, lambda a, b, c: b,
               lambda a, b, c: (a + b) // 2,
               lambda a, b, c: min((a, b, c), key=lambda v: abs(v - (a + b - c))))
CHANNELS = {2: 3, 6: 4}  # colour type -> bytes of a pixel, without alpha and with alpha


def decode(content):
    """Returns the pixels as an array [height, width, 3 or 4] of 8-bit red, green, blue and, if present, alpha."""
    assert content[:8] == b"\x89PNG\r\n\x1a\n"
    at, data, size = 8, b"", None
    while at < len(content):
        length, kind = struct.unpack_from(">I4s", content, at)
        body = content[at + 8:at + 8 + length]
        check, = struct.unpack_from(">I", content, at + 8 + length)
        assert check == zlib.crc32(kind + body)
        if kind == b"IHDR":
            size = struct.unpack(">IIBBBBB", body)
        data += body if kind == b"IDAT" else b""
        at += 12 + length
    width, height, depth, colour, *form = size
    assert depth == 8 and form == [0, 0, 0] and kind == b"IEND"
    return unfilter(zlib.decompress(data), width, height, CHANNELS[colour])


def unfilter(data, width, height, channels):
    rows = np.frombuffer(data, np.uint8).reshape(height, 1 + channels * width)
    above, pixels = [0] * (channels * (width + 1)), []
    for kind, *line in rows.tolist():
        here = [0] * channels  # the pixel to the left of the first pixel is 0
        predict = PREDICTIONS[kind]
        for i, byte in enumerate(line, channels):
            here.append(byte + predict(here[i - channels], above[i], above[i - channels]) & 255)
        pixels.append(here[channels:])
        above = here
    return np.array(pixels, np.uint8).reshape(height, width, channels)
