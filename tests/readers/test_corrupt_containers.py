# SPDX-License-Identifier: Apache-2.0
"""Damaged containers: an error or a skipped sample each time, never a crash, a hang or more memory."""

import json
from pathlib import Path

import pytest
from _forks import Forks
from conftest import WHOLE

COUNT = 2000 if WHOLE else 400

MUTATE = """
import io, json, random, sys, tarfile, time
from pathlib import Path
import numpy as np
import psutil
from readers._files import ints, floats, strings, write_recordio, write_tar, write_tfrecord
import torch_ndd as ndd
from torch_ndd import tfrecord as tf

kind, folder, count = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
draw = random.Random(1)
path, index = folder / "a.bin", folder / "a.idx"
features = {
    "image": tf.FixedLenFeature([], tf.string, ""),
    "label": tf.FixedLenFeature([1], tf.int64, -1),
    "boxes": tf.VarLenFeature([4], tf.float32, 0),
}
examples = [
    {"image": strings(bytes(range(40)) * (40 * (i % 2) + 1)), "label": ints([i], i % 2 == 0), "boxes": floats([1.0] * 8, i % 2 == 0)}
    for i in range(4)
]
members = [(f"{'x' * (120 * (i % 2))}{i}.{ext}", bytes([i]) * 40) for i in range(4) for ext in ("jpg", "cls")]
if kind == "TFRecord":
    write_tfrecord(path, examples)
    make = lambda **options: ndd.readers.TFRecord(4, path=path, features=features, **options)
elif kind == "MXNet":
    write_recordio(path, [(1.0, b"abc" * 30), ([1.0, 2.0], bytes.fromhex("0a23d7ce") * 5), (2.0, b""), (3.0, b"x" * 50)])
    make = lambda **options: ndd.readers.MXNet(4, path=path, **options)
elif kind == "Webdataset":
    write_tar(path, members, tarfile.GNU_FORMAT)
    make = lambda **options: ndd.readers.Webdataset(4, paths=path, ext=["jpg", "cls"], **options)
elif kind == "pax":
    write_tar(path, members, tarfile.PAX_FORMAT)
    make = lambda **options: ndd.readers.Webdataset(4, paths=path, ext=["jpg", "cls"], dtypes=[ndd.int16, ndd.uint8], **options)
else:
    np.save(folder / "a.npy", np.asfortranarray(np.arange(60, dtype=np.float32).reshape(3, 4, 5)))
    (folder / "a.npy").rename(path)
    roi = {"rel_roi_start": 0.3, "out_of_bounds_policy": "pad"}
    make = lambda **options: ndd.readers.Numpy(2, files=[path], **(roi if draw.random() < 0.5 else {}), **options)
if kind == "Webdataset":
    from torch_ndd.index import wds
    wds(str(path), str(index))

good = path.read_bytes()
text = index.read_bytes() if index.exists() else b""
process = psutil.Process()
tally = {"read": 0, "skipped": 0, "refused": 0}
slowest, memory = 0.0, []
for i in range(count):
    with_index = text and kind != "Numpy" and draw.random() < 0.4
    data = bytearray(text if with_index and draw.random() < 0.5 else good)
    damaged_index = with_index and len(data) == len(text)
    way = i % 5
    if way == 0:
        del data[draw.randrange(len(data)):]
    elif way == 1:
        data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
    elif way == 2:
        data[draw.randrange(min(len(data), 64))] = draw.choice((0, 255, draw.randrange(256)))
    elif way == 3:
        for _ in range(8):
            data[draw.randrange(len(data))] = draw.choice((0, 127, 128, 255, draw.randrange(256)))
    else:
        at = draw.randrange(len(data))
        data[at : at + draw.randrange(9)] = bytes(draw.randrange(256) for _ in range(draw.randrange(9)))
    if i % 500 == 0:
        data = bytearray()
    path.write_bytes(good if damaged_index else data)
    options = {}
    if with_index:
        index.write_bytes(data if damaged_index else text)
        options = {"index_paths": index} if kind == "Webdataset" else {"index_path": index}
    begin = time.perf_counter()
    try:
        reader = make(on_error=draw.choice(("skip", "raise")), **options)
        for outputs in reader:
            for one in outputs.values() if isinstance(outputs, dict) else outputs:
                for sample in one.tensors:
                    np.asarray(sample).tobytes()
        tally["skipped" if reader.errors else "read"] += 1
    except (RuntimeError, MemoryError):
        tally["refused"] += 1
    slowest = max(slowest, time.perf_counter() - begin)
    if i % 100 == 99:
        memory.append(process.memory_info().rss)
print(json.dumps({**tally, "slowest": slowest, "growth": memory[-1] / memory[len(memory) // 4]}))
"""


@pytest.mark.figures
@pytest.mark.parametrize("kind", ["TFRecord", "MXNet", "Webdataset", "pax", "Numpy"])
def test_damaged_files_never_crash(tmp_path: Path, kind: str, forks: Forks) -> None:
    run = forks.run(MUTATE, kind, tmp_path, COUNT)
    assert (run.wait(280), run.errors) == (0, "")
    result = json.loads(run.output)
    assert result["read"] + result["skipped"] + result["refused"] == COUNT
    assert result["refused"] + result["skipped"] > COUNT / 4
    assert result["slowest"] < 5
    assert result["growth"] < 1.05
    print(
        f"{kind}: {COUNT} damaged files: {result['read']:.0f} read, {result['skipped']:.0f} with skipped samples, {result['refused']:.0f} refused; "
        f"slowest {result['slowest']:.3f} s, memory grew by {(result['growth'] - 1) * 100:.1f} %"
    )
