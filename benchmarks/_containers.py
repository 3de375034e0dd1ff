# SPDX-License-Identifier: Apache-2.0
"""The same JPEGs in every container that a reader is measured with."""

from __future__ import annotations

import importlib
import io
import json
import os
import struct
import tarfile
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from ._other_containers import field, varint
from ._photos import write_jpegs

_SHARDS = 4
_BOXES = 5  # in an image
_SOUND_RATE = 16_000


@dataclass
class Containers:
    """Where the data lie; labels are the number of the image."""

    jpegs: list[str]
    arrays: list[str]
    tars: list[str]
    tar_indices: list[str]
    tfrecords: list[str]
    tfrecord_indices: list[str]
    root: str
    annotations: str
    manifest: str  # empty where soundfile is not installed
    sounds: list[str]
    parquet: str  # empty where pyarrow is not installed
    threads: int
    other: Any = None  # of the kind of `_other_containers` that is measured

    @property
    def labels(self) -> list[int]:
        """Of the JPEGs."""
        return list(range(len(self.jpegs)))


def write_containers(folder: Path, count: int, threads: int) -> Containers:
    """Write ``count`` JPEGs, as files, in tar archives, in TFRecords and under COCO annotations, in Parquet; as many arrays (224, 224, 3); sounds."""
    (folder / "jpegs").mkdir()
    jpegs = write_jpegs(folder / "jpegs", count)
    draw = np.random.default_rng(0)
    for k in range(count):
        np.save(folder / f"{k:05}.npy", draw.integers(0, 255, (224, 224, 3), np.uint8))
    shards = [range(first, count, _SHARDS) for first in range(_SHARDS)]
    tars = [_write_tar(folder / f"{k}.tar", [jpegs[i] for i in shard]) for k, shard in enumerate(shards)]
    records = [_write_tfrecord(folder / f"{k}.tfrecord", [jpegs[i] for i in shard]) for k, shard in enumerate(shards)]
    boxes = draw.uniform(10, 100, (count, _BOXES, 4)).round(2).tolist()
    images = [{"id": k, "file_name": path.name, "width": 500, "height": 375} for k, path in enumerate(jpegs)]
    annotations = [
        {"id": k * _BOXES + i, "image_id": k, "category_id": i + 1, "iscrowd": 0, "area": box[2] * box[3], "bbox": box}
        for k, rows in enumerate(boxes)
        for i, box in enumerate(rows)
    ]
    categories = [{"id": i + 1, "name": str(i)} for i in range(_BOXES)]
    place = folder / "instances.json"
    place.write_text(json.dumps({"images": images, "annotations": annotations, "categories": categories}))
    sounds = _write_sounds(folder, max(1, count // 4), draw) if find_spec("soundfile") else []
    manifest = _write_manifest(folder / "manifest.json", sounds) if sounds else ""
    parquet = _write_parquet(folder / "0.parquet", jpegs) if find_spec("pyarrow") else ""
    _read_from_disk(folder)
    return Containers(
        jpegs=[str(path) for path in jpegs],
        arrays=[str(folder / f"{k:05}.npy") for k in range(count)],
        tars=[str(path) for path in tars],
        tar_indices=[str(path.with_suffix(".idx")) for path in tars],
        tfrecords=[str(path) for path in records],
        tfrecord_indices=[str(path.with_suffix(".tfidx")) for path in records],
        root=str(folder / "jpegs"),
        annotations=str(place),
        manifest=str(manifest),
        sounds=[str(path) for path in sounds],
        parquet=str(parquet),
        threads=threads,
    )


def _write_sounds(folder: Path, count: int, draw: np.random.Generator) -> list[Path]:
    """Sounds of 2 s at 16 kHz in FLAC, the form of LibriSpeech: sweeps of tones with some noise."""
    soundfile = importlib.import_module("soundfile")
    times = np.arange(2 * _SOUND_RATE) / _SOUND_RATE
    paths = []
    for k in range(count):
        tones = sum(np.sin(2 * np.pi * frequency * times * (1 + 0.1 * times)) for frequency in draw.uniform(100, 3000, 4))
        paths.append(folder / f"{k:05}.flac")
        soundfile.write(paths[-1], (2000 * tones + draw.normal(0, 60, len(times))).astype(np.int16), _SOUND_RATE)
    return paths


def _write_manifest(path: Path, sounds: list[Path]) -> Path:
    entries = [{"audio_filepath": str(path), "duration": 2.0, "text": f"the sound with number {k}"} for k, path in enumerate(sounds)]
    path.write_text("\n".join(map(json.dumps, entries)) + "\n")
    return path


def _write_parquet(path: Path, jpegs: list[Path]) -> Path:
    """In the form of Hugging Face: row groups of 100 images."""
    pa, parquet = importlib.import_module("pyarrow"), importlib.import_module("pyarrow.parquet")
    images = [{"bytes": jpeg.read_bytes(), "path": jpeg.name} for jpeg in jpegs]
    parquet.write_table(pa.table({"image": images, "label": list(range(len(jpegs)))}), path, row_group_size=100, compression="none")
    return path


def _read_from_disk(folder: Path) -> None:
    """Leave the files in the system's memory as reading leaves them there: in large pages. Written a little at a time they lie in pages of 4 kB,
    from which reading takes half as much time again.
    """
    if not hasattr(os, "posix_fadvise"):
        return
    os.sync()
    for path in folder.rglob("*"):
        if path.is_file():
            with open(path, "rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
                while file.read(1 << 20):
                    pass


def _write_tar(path: Path, jpegs: list[Path]) -> Path:
    lines = []
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as archive:
        for jpeg in jpegs:
            words = []
            for name, content in ((f"{jpeg.stem}.jpg", jpeg.read_bytes()), (f"{jpeg.stem}.cls", str(int(jpeg.stem)).encode())):
                info = tarfile.TarInfo(name)
                info.size = len(content)
                words += [name.split(".")[1], archive.offset + tarfile.BLOCKSIZE, len(content), name]
                archive.addfile(info, io.BytesIO(content))
            lines.append(" ".join(map(str, words)))
    path.with_suffix(".idx").write_text(f"v1.2 {len(lines)}\n" + "\n".join(lines) + "\n")
    return path


def _write_tfrecord(path: Path, jpegs: list[Path]) -> Path:
    index, begin = [], 0
    with open(path, "wb") as file:
        for jpeg in jpegs:
            label = field(3, field(1, varint(int(jpeg.stem))))
            features = (b"image", field(1, field(1, jpeg.read_bytes()))), (b"label", label)
            message = field(1, b"".join(field(1, field(1, key) + field(2, value)) for key, value in features))
            length = struct.pack("<Q", len(message))
            record = length + _masked_crc(length) + message + bytes(4)  # no reader looks at the checksum of the message
            file.write(record)
            index.append(f"{begin} {len(record)}\n")
            begin += len(record)
    path.with_suffix(".tfidx").write_text("".join(index))
    return path


def _masked_crc(data: bytes) -> bytes:
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    crc ^= 0xFFFFFFFF
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)
