# SPDX-License-Identifier: Apache-2.0
"""Small data sets of every format that the readers take, for the examples."""

import json
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import torch
from PIL import Image

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(ROOT / "tests/helpers")]

from _messages import datum, ints, string, tensors, write_lmdb  # noqa: E402
from _robots import write_v3  # noqa: E402
from readers._files import write_recordio  # noqa: E402

from benchmarks._containers import Containers, write_containers  # noqa: E402

# What the photographs of benchmarks._containers show: left, top, width and height in pixels.
_SEEN = (
    {"person": [[20, 0, 348, 375]], "rocket": [[352, 0, 112, 254]]},
    {"eye": [[138, 144, 70, 78], [332, 110, 109, 90]]},
    {"cup": [[44, 0, 262, 280]], "spoon": [[209, 192, 94, 104]]},
    {"motorcycle": [[0, 50, 375, 450]]},
    {"motorcycle": [[0, 48, 415, 296]]},
    {"rocket": [[172, 75, 33, 298]]},
    {"building": [[38, 24, 286, 351]]},
    {"flower": [[104, 66, 254, 254]]},
)
_CATEGORIES = ("person", "rocket", "eye", "cup", "spoon", "motorcycle", "building", "flower")


def write_annotations(path: Path, jpegs: list[str]) -> str:
    """Write the boxes of what the photographs show, in COCO's format."""
    images, annotations = [], []
    for k, (jpeg, seen) in enumerate(zip(jpegs, _SEEN, strict=True)):
        with Image.open(jpeg) as image:
            images.append({"id": k, "file_name": Path(jpeg).name, "width": image.width, "height": image.height})
        for name, boxes in seen.items():
            for box in boxes:
                found = {"id": len(annotations), "image_id": k, "category_id": _CATEGORIES.index(name) + 1, "iscrowd": 0}
                annotations.append({**found, "area": box[2] * box[3], "bbox": box})
    categories = [{"id": k + 1, "name": name} for k, name in enumerate(_CATEGORIES)]
    path.write_text(json.dumps({"images": images, "annotations": annotations, "categories": categories}))
    return str(path)


def write_cuts(path: Path, sounds: list[str]) -> str:
    """Write a manifest of Lhotse with one cut of each sound file, the whole of it."""
    import soundfile

    with path.open("w") as file:
        for k, sound in enumerate(sounds):
            facts = soundfile.info(sound)
            recording = {"id": f"recording {k}", "sources": [{"type": "file", "channels": [0], "source": sound}], "duration": facts.duration}
            recording |= {"sampling_rate": facts.samplerate, "num_samples": facts.frames, "channel_ids": [0]}
            spoken = {"id": f"text {k}", "start": 0.0, "duration": facts.duration, "text": "a sentence", "speaker": "anna"}
            cut = {"id": f"cut {k}", "start": 0.0, "duration": facts.duration, "channel": 0, "supervisions": [spoken], "recording": recording}
            file.write(json.dumps({**cut, "type": "MonoCut"}) + "\n")
    return str(path)


def write_arrays(folder: Path, jpegs: list[str]) -> list[str]:
    """Write the pixels of the photographs as NumPy files."""
    paths = []
    for jpeg in jpegs:
        paths.append(str(folder / f"{Path(jpeg).stem}_pixels.npy"))
        with Image.open(jpeg) as image:
            np.save(paths[-1], np.asarray(image))
    return paths


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
        **{name: getattr(found, name) for name in ("tars", "tfrecords", "jpegs", "root", "manifest", "parquet")},
        annotations=write_annotations(folder / "objects.json", found.jpegs),
        arrays=write_arrays(folder, found.jpegs),
        place=str(folder),
        folder=str(folder / "photos"),
        video=str(folder / "clip.mp4"),
        recordio=str(write_recordio(folder / "images.rec", images)),
        recordio_index=str(folder / "images.idx"),
        robot=str(write_v3(folder / "robot")),
        sound=found.sounds[0],
        cuts=write_cuts(folder / "cuts.jsonl", found.sounds),
        caffe=write_lmdb(folder / "caffe", [datum(content, k % 2, encoded=True) for k, content in enumerate(jpegs)]),
        caffe2=write_lmdb(folder / "caffe2", [tensors(string(content), ints([k % 2])) for k, content in enumerate(jpegs)]),
    )
