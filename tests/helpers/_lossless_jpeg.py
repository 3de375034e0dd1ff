# SPDX-License-Identifier: Apache-2.0
"""Lossless JPEG of one component (ITU-T T.81, annex H) in Python: the reference for nvJPEG, because the CPU's decoders have 8 bits at most."""

import struct

import numpy as np

_CODE_BITS = 5  # of all categories that encode() uses: 0 to 16


def encode(pixels: np.ndarray, bits: int = 16) -> np.ndarray:
    """Return a file of unsigned samples (H, W), each predicted by its left neighbor (predictor 1)."""
    height, width = pixels.shape
    predicted = np.empty((height, width), np.int64)
    predicted[:, 1:] = pixels[:, :-1]
    predicted[1:, 0] = pixels[:-1, 0]
    predicted[0, 0] = 1 << (bits - 1)
    differences = ((pixels.astype(np.int64) - predicted + 32767) % 65536 - 32767).ravel().tolist()  # -32767 to 32768
    stream = []
    for value in differences:
        category = abs(value).bit_length()
        stream.append(f"{category:0{_CODE_BITS}b}")
        if 0 < category < 16:
            stream.append(f"{value if value > 0 else value + (1 << category) - 1:0{category}b}")
    text = "".join(stream)
    text += "1" * (-len(text) % 8)
    data = int(text, 2).to_bytes(len(text) // 8, "big").replace(b"\xff", b"\xff\0")
    lengths = bytes(17 if length == _CODE_BITS else 0 for length in range(1, 17))
    segments = [
        (0xC3, struct.pack(">BHHB", bits, height, width, 1) + bytes([1, 0x11, 0])),
        (0xC4, b"\0" + lengths + bytes(range(17))),
        (0xDA, bytes([1, 1, 0, 1, 0, 0])),
    ]
    header = b"".join(bytes([0xFF, marker]) + struct.pack(">H", len(content) + 2) + content for marker, content in segments)
    return np.frombuffer(b"\xff\xd8" + header + data + b"\xff\xd9", np.uint8)


def decode(file: bytes) -> np.ndarray:
    """Return the samples (H, W) of a file of one component without restarts and point transformation."""
    at, tables = 2, {}
    bits = height = width = 0
    while True:
        marker, length = file[at + 1], int.from_bytes(file[at + 2 : at + 4], "big")
        content = file[at + 4 : at + 2 + length]
        at += 2 + length
        if marker == 0xC3:
            bits, height, width = struct.unpack(">BHH", content[:5])
        elif marker == 0xC4:
            tables.update(_read_tables(content))
        elif marker == 0xDA:
            break
    codes, predictor = tables[content[2] >> 4], content[3]
    data = file[at : file.rindex(b"\xff\xd9")].replace(b"\xff\0", b"\xff")
    differences = _read_differences(f"{int.from_bytes(data, 'big'):0{8 * len(data)}b}", codes, height * width)
    rows: list[list[int]] = []
    for y in range(height):
        row: list[int] = []
        for x in range(width):
            value = _predict(rows, row, x, predictor, bits) + differences[y * width + x]
            row.append(value & 0xFFFF)
        rows.append(row)
    return np.array(rows, np.uint16)


def _read_tables(content: bytes) -> dict[int, dict[str, int]]:
    """Return the Huffman codes of each table, as text of bits, and their categories."""
    tables: dict[int, dict[str, int]] = {}
    at = 0
    while at < len(content):
        number, lengths = content[at] & 15, content[at + 1 : at + 17]
        at += 17
        code, codes = 0, {}
        for bits, count in enumerate(lengths, 1):
            for category in content[at : at + count]:
                codes[f"{code:0{bits}b}"] = category
                code += 1
            at += count
            code <<= 1
        tables[number] = codes
    return tables


def _read_differences(stream: str, codes: dict[str, int], count: int) -> list[int]:
    shortest = min(map(len, codes))
    at, differences = 0, []
    for _ in range(count):
        end = at + shortest
        while (code := stream[at:end]) not in codes:
            end += 1
        category = codes[code]
        at = end + (category if category < 16 else 0)
        if category == 0:
            differences.append(0)
        elif category == 16:
            differences.append(32768)
        else:
            value = int(stream[end:at], 2)
            differences.append(value if stream[end] == "1" else value - (1 << category) + 1)
    return differences


def _predict(rows: list[list[int]], row: list[int], x: int, predictor: int, bits: int) -> int:
    """Return the prediction of the next sample of a row: the first row from the left, the first column from above (H.1.2.1)."""
    if not rows:
        return row[-1] if row else 1 << (bits - 1)
    above = rows[-1][x]
    if not row:
        return above
    left, corner = row[-1], rows[-1][x - 1]
    return (
        0,
        left,
        above,
        corner,
        left + above - corner,
        left + ((above - corner) >> 1),
        above + ((left - corner) >> 1),
        (left + above) >> 1,
    )[predictor]
