# SPDX-License-Identifier: Apache-2.0
"""Read many damaged files of a kind in a separate process: ``python _damage.py KIND COUNT SEED`` prints the results as JSON."""

import io
import json
import random
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from _messages import datum, floats, ints, pixels, tensors, write_lmdb

import torch_ndd as ndd


def mutations(content: bytes, count: int, seed: int) -> Iterator[bytes]:
    """Bit flips, other bytes, truncations, repetitions, a wrong beginning, an empty file."""
    draw = random.Random(seed)
    for k in range(count):
        result = bytearray(content)
        kind = k % 8
        if kind == 0:
            for _ in range(draw.randint(1, 8)):
                result[draw.randrange(len(result))] ^= 1 << draw.randrange(8)
        elif kind == 1:
            for _ in range(draw.randint(1, 4)):
                result[draw.randrange(len(result))] = draw.randrange(256)
        elif kind == 2:
            del result[draw.randrange(len(result)) :]
        elif kind == 3:
            begin = draw.randrange(len(result))
            del result[begin : begin + draw.randint(1, 40)]
        elif kind == 4:
            begin = draw.randrange(len(result))
            result[begin:begin] = result[begin : begin + draw.randint(1, 40)]
        elif kind == 5:
            begin = draw.randrange(len(result))
            result[begin : begin + 8] = draw.choice([b"\xff", b"\0", b"9", b"\x80"]) * len(result[begin : begin + 8])
        elif kind == 6:
            result[: draw.randint(1, 8)] = bytes(draw.randrange(256) for _ in range(8))
        elif k % 16 == 7:
            result.clear()
        else:
            end = len(result) - draw.randrange(min(len(result), 200))
            result[end - 1] = draw.randrange(256)
        yield bytes(result)


def caffe() -> tuple[bytes, Callable[[str], Any]]:
    content = datum(bytes(range(48)) * 4, 7, (3, 8, 8), False)
    return content, lambda path: ndd.readers.Caffe(path=path, on_error="skip")


def caffe2() -> tuple[bytes, Callable[[str], Any]]:
    content = tensors(pixels(bytes(range(48)), [4, 4, 3]), ints([1, 300, 7]), floats([0.5] * 3), ints([1, 2, 3, 4]))
    return content, lambda path: ndd.readers.Caffe2(path=path, label_type=3, num_labels=1000, bbox=True, on_error="skip")


def coco(folder: Path) -> tuple[bytes, Callable[[], Any]]:
    for k in range(3):
        (folder / f"{k}.jpg").write_bytes(b"image")
    square = [[1.5, 1, 8, 1, 8, 6, 2, 6]]
    shapes = [square, {"size": [10, 20], "counts": [30, 5, 165]}, {"size": [10, 20], "counts": "n0:n0\\O0"}]
    document = {
        "images": [{"id": k, "file_name": f"{k}.jpg", "width": 20, "height": 10} for k in range(3)],
        "annotations": [
            {"id": k, "image_id": k % 3, "category_id": k % 2, "bbox": [k, 1, 5.5, 4], "iscrowd": 0, "segmentation": shapes[k % 3]} for k in range(6)
        ],
        "categories": [{"id": 0}, {"id": 1}],
    }
    reads = [{"polygon_masks": True, "ratio": True}, {"pixelwise_masks": True}]
    place = iter(range(10**9))
    content = json.dumps(document).encode()
    return content, lambda: ndd.readers.COCO(annotations_file=folder / "damaged", file_root=folder, **reads[next(place) % 2])


def manifest(folder: Path) -> tuple[bytes, Callable[[], Any]]:
    import soundfile

    soundfile.write(folder / "x.wav", np.arange(100, dtype=np.int16), 8000)
    entries = [{"audio_filepath": "x.wav", "text": f"t\u00e9xt {k}", "duration": 0.01 * k, "offset": 0.001} for k in range(4)]
    content = "\n".join(json.dumps(entry) for entry in entries).encode()
    return content, lambda: ndd.readers.NemoAsr(manifest_filepaths=folder / "damaged")


def sound(folder: Path) -> tuple[bytes, Callable[[], Any]]:
    import soundfile

    result = io.BytesIO()
    soundfile.write(result, np.arange(500, dtype=np.int16), 8000, format="FLAC")
    (folder / "x.json").write_text('{"audio_filepath": "damaged"}')
    return result.getvalue(), lambda: ndd.readers.NemoAsr(manifest_filepaths=folder / "x.json", sample_rate=16000.0)


def parquet(folder: Path) -> tuple[bytes, Callable[[], Any]]:
    import pyarrow as pa
    from pyarrow import parquet as pq

    columns = {
        "number": list(range(20)),
        "text": [f"text {k}" for k in range(20)],
        "list": [[k] * (k % 4) for k in range(20)],
        "image": [{"bytes": b"image" * k, "path": None} for k in range(20)],
    }
    pq.write_table(pa.table(columns), folder / "whole.parquet", row_group_size=8)
    return (folder / "whole.parquet").read_bytes(), lambda: ndd.readers.Parquet(path=folder / "damaged")


def resident() -> int:
    """Return the memory of this process in kB."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4


def values(kind: str, count: int, seed: int) -> None:
    """Damaged values of one database, in four parts, to compare memory."""
    slowest, base, skipped, read = 0.0, 0, 0, 0
    content, make = globals()[kind]()
    damaged = list(mutations(content, count, seed))
    with tempfile.TemporaryDirectory() as name:
        for part in range(4):
            path = write_lmdb(Path(name, f"{part}"), [content, *(value or b"\0" for value in damaged[part::4])])
            reader, began = make(path), time.monotonic()
            for _ in reader:
                read += 1
                slowest, began = max(slowest, time.monotonic() - began), time.monotonic()
            skipped += len(reader.errors)
            read -= 1  # the undamaged one
            del reader
            base = base or resident()
    assert read + skipped == count
    print(json.dumps({"read": read, "skipped": skipped, "refused": 0, "slowest": round(slowest, 3), "memory": round(resident() / base, 3)}))


def files(kind: str, count: int, seed: int) -> None:
    """Damaged files, one after the other."""
    outcome = {"read": 0, "skipped": 0, "refused": 0}
    slowest, base = 0.0, 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        content, make = globals()[kind](folder)
        (folder / "damaged").write_bytes(content)
        assert sum(1 for _ in make().next_epoch()) > 0  # readable while undamaged
        for k, damaged in enumerate(mutations(content, count, seed)):
            (folder / "damaged").write_bytes(damaged)
            began = time.monotonic()
            reader = make()
            reader._on_error = "skip"
            try:
                for _ in reader:
                    pass
                outcome["skipped" if reader.errors else "read"] += 1
            except (RuntimeError, ValueError):
                outcome["refused"] += 1
            slowest = max(slowest, time.monotonic() - began)
            del reader
            if k == count // 4:
                base = resident()
        print(json.dumps({**outcome, "slowest": round(slowest, 3), "memory": round(resident() / base, 3)}))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    (values if sys.argv[1].startswith("caffe") else files)(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
