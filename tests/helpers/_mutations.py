# SPDX-License-Identifier: Apache-2.0
"""Decodes damaged files: ``python _mutations.py COUNT SEED FORMAT...`` prints a line of JSON for each format, with what became of its files.

It is a separate process, which may crash: the format whose line is missing is to blame.
"""

import contextlib
import io
import json
import random
import sys
import time
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
from _memory import resident_kilobytes

import torch_ndd as ndd

WARM_UP = 4  # the part of the files after which memory is first measured


def image(codec: str, **options: Any) -> bytes:
    from PIL import Image

    samples = np.add.outer(np.arange(40) * 2, np.arange(56) * 3).astype(np.uint8)
    file = io.BytesIO()
    Image.fromarray(np.dstack([samples, 255 - samples, samples // 2])).save(file, codec, **options)
    return file.getvalue()


def sound(container: str, subtype: str) -> bytes:
    import soundfile

    file = io.BytesIO()
    soundfile.write(file, 0.5 * np.sin(np.arange(4000)[:, None] / (7, 9)), 16000, format=container, subtype=subtype)
    return file.getvalue()


def array(order: str) -> bytes:
    file = io.BytesIO()
    np.save(file, np.asarray(np.arange(600.0).reshape(20, 30), order=order))
    return file.getvalue()


def video(container: str, **options: object) -> bytes:
    from _videos import encode, frames_of

    return encode(frames_of(8), container, **options).tobytes()


def lz4() -> bytes:
    from lz4 import block

    return block.compress(bytes(range(100)) * 20, store_size=False)


def decode_image(file: ndd.Tensor) -> None:
    with contextlib.suppress(RuntimeError):
        ndd.peek_image_shape(file)
    np.asarray(ndd.decoders.image(file))


def inflate(algorithm: str) -> Callable[[ndd.Tensor], Any]:
    return lambda file: np.asarray(ndd.decoders.inflate(file, algorithm=algorithm, shape=[2000]))


FORMATS: dict[str, tuple[Callable[[], list[bytes]], Callable[[ndd.Tensor], Any]]] = {
    "jpeg": (lambda: [image("JPEG"), image("JPEG", progressive=True)], decode_image),
    "png": (lambda: [image("PNG")], decode_image),
    "tiff": (lambda: [image("TIFF"), image("TIFF", compression="tiff_lzw")], decode_image),
    "bmp": (lambda: [image("BMP")], decode_image),
    "pnm": (lambda: [image("PPM")], decode_image),
    "webp": (lambda: [image("WEBP"), image("WEBP", lossless=True)], decode_image),
    "jpeg2000": (lambda: [image("JPEG2000")], decode_image),
    "wav": (lambda: [sound("WAV", "PCM_16"), sound("WAV", "FLOAT")], lambda file: np.asarray(ndd.decoders.audio(file)[0])),
    "flac": (lambda: [sound("FLAC", "PCM_16")], lambda file: np.asarray(ndd.decoders.audio(file, downmix=True)[0])),
    "ogg": (lambda: [sound("OGG", "VORBIS"), sound("OGG", "OPUS")], lambda file: np.asarray(ndd.decoders.audio(file, sample_rate=8000.0)[0])),
    "mp3": (lambda: [sound("MP3", "MPEG_LAYER_III")], lambda file: np.asarray(ndd.decoders.audio(file, dtype=ndd.int16)[0])),
    "npy": (lambda: [array("C"), array("F")], lambda file: ndd.decoders.numpy(file, dtype=ndd.float32).torch()),
    "mp4": (lambda: [video("mp4"), video("webm")], lambda file: np.asarray(ndd.decoders.video(file))),
    "lz4": (lambda: [lz4()], inflate("LZ4")),
    "zlib": (lambda: [zlib.compress(bytes(range(100)) * 20)], inflate("Zlib")),
}


def mutate(file: bytes, kind: int, draw: random.Random) -> bytes:
    """Empty files and wrong magic numbers now and then; flipped bits and bytes anywhere or near the start; pieces lost or repeated; truncation."""
    data = bytearray(file)
    at = draw.randrange(len(data))
    if kind == 0:
        del data[at:]
    elif kind == 1:
        for _ in range(draw.choice((1, 2, 8))):
            data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
    elif kind in (2, 3):
        for _ in range(draw.choice((1, 2, 8))):
            data[draw.randrange(min((64, 400)[kind - 2], len(data)))] = draw.choice((0, 255, draw.randrange(256)))
    elif kind == 4:
        piece = data[at : at + draw.randrange(1, 200)]
        data[at : at + len(piece)] = b"" if draw.random() < 0.5 else piece + piece
    elif draw.random() < 0.1:
        data.clear()
    else:
        data[: draw.randrange(1, 9)] = draw.randbytes(draw.randrange(1, 9))
    return bytes(data)


def main(name: str, count: int, seed: int) -> dict[str, Any]:
    make, decode = FORMATS[name]
    files, draw = make(), random.Random(seed)
    for file in files:
        decode(ndd.tensor(np.frombuffer(file, np.uint8)))
    decoded, slowest, before = 0, 0.0, 0
    for i in range(count):
        data = mutate(files[i % len(files)], i // len(files) % 6, draw)
        start = time.perf_counter()
        try:
            decode(ndd.tensor(np.frombuffer(data, np.uint8)))
            decoded += 1
        except (RuntimeError, MemoryError):
            pass
        slowest = max(slowest, time.perf_counter() - start)
        if i + 1 == count // WARM_UP:
            before = resident_kilobytes()
    return {"format": name, "decoded": decoded, "refused": count - decoded, "slowest": slowest, "before": before, "after": resident_kilobytes()}


if __name__ == "__main__":
    for name in sys.argv[3:]:
        print(json.dumps(main(name, int(sys.argv[1]), int(sys.argv[2]))), flush=True)
