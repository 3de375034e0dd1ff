# SPDX-License-Identifier: Apache-2.0
"""Databases, records, frames, videos, FITS files and tables of Arrow with the JPEGs of a benchmark; each is written only if it is measured."""

from __future__ import annotations

import importlib
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

FRAMES = 4  # of a sequence
_SIDE = 128  # pixels of a frame
_VIDEO = 64  # frames of a video, and of a folder of frames
_MAGIC = 0xCED7230A  # of a record of MXNet


def write_other(kind: str, folder: Path, jpegs: list[str]) -> Any:
    """Write the data of a kind, and return where they lie: a path, or several; a data set of Hugging Face."""
    folder.mkdir()
    return _WRITERS[kind](folder, [Path(jpeg) for jpeg in jpegs])


def varint(number: int) -> bytes:
    """Encode a number as Protocol Buffers do."""
    encoded = bytearray()
    while number > 127:
        encoded.append(number & 127 | 128)
        number >>= 7
    return bytes([*encoded, number])


def field(number: int, content: bytes | int) -> bytes:
    """Encode a field of a message."""
    if isinstance(content, int):
        return varint(number << 3) + varint(content)
    return varint(number << 3 | 2) + varint(len(content)) + content


def _write_lmdb(folder: Path, jpegs: list[Path], message: Callable[[bytes, int], bytes]) -> str:
    with importlib.import_module("lmdb").open(str(folder), map_size=1 << 32) as database, database.begin(write=True) as transaction:
        for k, jpeg in enumerate(jpegs):
            transaction.put(b"%08d" % k, message(jpeg.read_bytes(), k))
    return str(folder)


def _write_caffe(folder: Path, jpegs: list[Path]) -> str:
    # Datum: data, label, encoded.
    return _write_lmdb(folder, jpegs, lambda jpeg, label: field(4, jpeg) + field(5, label) + field(7, 1))


def _write_caffe2(folder: Path, jpegs: list[Path]) -> str:
    # TensorProtos: a tensor of a string, and one of an int32, each with its data type.
    def message(jpeg: bytes, label: int) -> bytes:
        return field(1, field(2, 4) + field(6, jpeg)) + field(1, field(1, 1) + field(2, 2) + field(4, varint(label)))

    return _write_lmdb(folder, jpegs, message)


def _write_mxnet(folder: Path, jpegs: list[Path]) -> tuple[str, str]:
    lines, begin, path = [], 0, folder / "0.rec"
    with open(path, "wb") as file:
        for k, jpeg in enumerate(jpegs):
            # Flag 0: one label, in the header; then two identifiers.
            content = struct.pack("<IfQQ", 0, k, k, 0) + jpeg.read_bytes()
            record = struct.pack("<II", _MAGIC, len(content)) + content + bytes(-len(content) % 4)
            file.write(record)
            lines.append(f"{k}\t{begin}\n")
            begin += len(record)
    path.with_suffix(".idx").write_text("".join(lines))
    return str(path), str(path.with_suffix(".idx"))


def _small(jpeg: Path) -> Any:
    return importlib.import_module("PIL.Image").open(jpeg).resize((_SIDE, _SIDE))


def _write_frames(folder: Path, jpegs: list[Path]) -> str:
    for k, jpeg in enumerate(jpegs):
        path = folder / f"{k // _VIDEO:04}" / f"{k % _VIDEO:04}.jpg"
        path.parent.mkdir(exist_ok=True)
        _small(jpeg).save(path, quality=90)
    return str(folder)


def _write_videos(folder: Path, jpegs: list[Path]) -> list[str]:
    """In VP9, which DALI decodes on the CPU; scenes that move by some pixels, as videos do."""
    paths = []
    for first in range(0, len(jpegs), _VIDEO):
        pixels = np.asarray(_small(jpegs[first]))
        frames = torch.from_numpy(np.stack([np.roll(pixels, k, 1) for k in range(_VIDEO)])).permute(0, 3, 1, 2).contiguous()
        paths.append(str(folder / f"{first:05}.mp4"))
        encoder = importlib.import_module("torchcodec.encoders").VideoEncoder(frames, frame_rate=30)
        encoder.to_file(paths[-1], codec="libvpx-vp9", pixel_format="yuv420p", extra_options={"g": "16"})
    return paths


def _write_fits(folder: Path, jpegs: list[Path]) -> list[str]:
    fits, paths = importlib.import_module("astropy.io.fits"), []
    for k, jpeg in enumerate(jpegs):
        paths.append(str(folder / f"{k:05}.fits"))
        pixels = np.asarray(_small(jpeg).convert("F"), np.float32)
        fits.HDUList([fits.PrimaryHDU(), fits.ImageHDU(pixels)]).writeto(paths[-1])
    return paths


def _write_arrow(folder: Path, jpegs: list[Path]) -> str:
    datasets = importlib.import_module("datasets")
    columns = {
        "image": [jpeg.read_bytes() for jpeg in jpegs],
        "label": list(range(len(jpegs))),
        "text": [f"the image with number {k}" for k in range(len(jpegs))],
    }
    datasets.Dataset.from_dict(columns).save_to_disk(str(folder))
    return str(folder)


_WRITERS: dict[str, Callable[[Path, list[Path]], Any]] = {
    "Caffe": _write_caffe,
    "Caffe2": _write_caffe2,
    "MXNet": _write_mxnet,
    "Sequence": _write_frames,
    "Video": _write_videos,
    "Fits": _write_fits,
    "HuggingFace": _write_arrow,
}
OTHERS = tuple(_WRITERS)
