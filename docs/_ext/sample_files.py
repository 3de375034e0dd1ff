# SPDX-License-Identifier: Apache-2.0
"""Small data sets of every format that the readers take, for the examples."""

import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import torch

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(ROOT / "tests/helpers")]

from _messages import datum, ints, string, tensors, write_lmdb  # noqa: E402
from _robots import write_v3  # noqa: E402
from readers._files import write_recordio  # noqa: E402

from benchmarks._containers import Containers, write_containers  # noqa: E402


def write_datasets(video: object) -> SimpleNamespace:
    """Write the data sets and return their places; ``video`` is a Tensor of frames, FHWC."""
    from torchcodec.encoders import VideoEncoder

    folder = Path(tempfile.mkdtemp(prefix="ndd-docs-"))
    found: Containers = write_containers(folder, 8, 1)
    jpegs = [Path(path).read_bytes() for path in found.jpegs]
    for k, content in enumerate(jpegs):
        place = folder / "photos" / ("indoors" if k % 2 else "outdoors") / f"{k}.jpg"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)
    frames = np.asarray(video).transpose(0, 3, 1, 2)
    VideoEncoder(torch.from_numpy(np.ascontiguousarray(frames)), frame_rate=8).to_file(str(folder / "clip.mp4"))
    images = [(k % 2, content) for k, content in enumerate(jpegs)]
    return SimpleNamespace(
        **{name: getattr(found, name) for name in ("tars", "tfrecords", "arrays", "root", "annotations", "manifest", "parquet")},
        folder=str(folder / "photos"),
        video=str(folder / "clip.mp4"),
        recordio=str(write_recordio(folder / "images.rec", images)),
        recordio_index=str(folder / "images.idx"),
        robot=str(write_v3(folder / "robot")),
        caffe=write_lmdb(folder / "caffe", [datum(content, k % 2, encoded=True) for k, content in enumerate(jpegs)]),
        caffe2=write_lmdb(folder / "caffe2", [tensors(string(content), ints([k % 2])) for k, content in enumerate(jpegs)]),
    )
