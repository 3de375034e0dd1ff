# SPDX-License-Identifier: Apache-2.0
"""Arguments that take one of a few strings: the annotation lists what the code accepts, and nothing else."""

import dataclasses
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from _public_api import dali_choices, functions_with_choices
from PIL import Image
from test_operators import CASES

import torch_ndd as ndd
from torch_ndd import dali
from torch_ndd.dali import auto_aug
from torch_ndd.dali.experimental.torchvision.v2.functional import to_pil_image
from torch_ndd.dali.plugin.pytorch.loader_evaluator import LoaderEvaluator


def drain(reader: Any) -> None:
    list(reader.next_epoch(batch_size=1))


def file_of(tmp_path: Path, name: str = "0.npy") -> str:
    np.save(tmp_path / name, np.zeros(3))
    return str(tmp_path / name)


def images() -> ndd.Batch:
    return ndd.batch(np.zeros((2, 4, 4, 3), np.float32), layout="HWC")


def image_folder(folder: Path) -> Any:
    (folder / "cat").mkdir(exist_ok=True)
    Image.new("RGB", (2, 2)).save(folder / "cat" / "0.png")
    return ndd.torchvision.ImageFolder(folder, ndd.torchvision.v2.ToImage())


def rows() -> Any:
    return pytest.importorskip("datasets").Dataset.from_dict({"x": [1]})


def parallel_pipeline(**choice: Any) -> dali.Pipeline:
    pipe = dali.Pipeline(1, 1, None, **choice)
    with pipe:
        pipe.set_outputs(dali.fn.external_source([[1]], parallel=True, batch=True))
    return pipe


Call = Callable[..., Any]
_video = {"sequence_length": 1}
# How to call what is not an operator, up to the check of the argument.
CALLS: dict[str, Call] = {
    "ExternalSource": lambda folder, **choice: ndd.ExternalSource([[1]], **choice),
    "imread": lambda folder, **choice: ndd.imread(file_of(folder), cache_size=1, **choice).cpu(),
    "batches.Balanced": lambda folder, **choice: ndd.batches.Balanced(1, **choice),
    "batches.Batches": lambda folder, **choice: ndd.batches.Batches(None, **choice),
    "batches.Bucketed": lambda folder, **choice: ndd.batches.Bucketed(1, **choice),
    "batches.Packed": lambda folder, **choice: ndd.batches.Packed(1, **choice),
    "decoders.cache": lambda folder, **choice: ndd.decoders.cache("1MB", **choice),
    "pack.pack": lambda folder, **choice: sys.modules["torch_ndd.pack"].pack(folder, folder / "packed", **choice),
    "augment.auto_augment": lambda folder, **choice: ndd.augment.auto_augment(images(), **choice),
    "augment.cutmix": lambda folder, **choice: ndd.augment.cutmix(images(), [0, 1], num_classes=2, **choice),
    "augment.mixup": lambda folder, **choice: ndd.augment.mixup(images(), [0, 1], num_classes=2, **choice),
    "augment.mixup_or_cutmix": lambda folder, **choice: ndd.augment.mixup_or_cutmix(images(), [0, 1], num_classes=2, **choice),
    "augment.random_erasing": lambda folder, **choice: ndd.augment.random_erasing(images(), **choice),
    "multi_crop": lambda folder, **choice: ndd.multi_crop(images(), windows=[[[0, 0, 1, 1]]] * 2, sizes=[[1, 1]], **choice),
    "patch_positions": lambda folder, **choice: ndd.patch_positions([1, 1, 1], **choice),
    "sizes.fit": lambda folder, **choice: ndd.sizes.fit([1, 1], shortest=1, **choice),
    "python_function": lambda folder, **choice: ndd.python_function(np.negative, [1], **choice),
    "python_operator": lambda folder, **choice: ndd.python_operator(**choice)(np.negative),
    "readers.COCO": lambda folder, **choice: ndd.readers.COCO(annotations_file=file_of(folder), file_root=folder, **choice),
    "readers.Caffe": lambda folder, **choice: ndd.readers.Caffe(path=folder, **choice),
    "readers.Caffe2": lambda folder, **choice: ndd.readers.Caffe2(path=folder, **choice),
    "readers.Dataset": lambda folder, **choice: ndd.readers.Dataset([1], **choice),
    "readers.File": lambda folder, **choice: ndd.readers.File(files=[file_of(folder)], **choice),
    "readers.HuggingFace": lambda folder, **choice: ndd.readers.HuggingFace(dataset=rows(), **choice),
    "readers.Join": lambda folder, **choice: ndd.readers.Join([{"id": 1}], [{"id": 1}], on="id", **choice),
    "readers.LeRobot": lambda folder, **choice: ndd.readers.LeRobot(path=folder, **choice),
    "readers.Lhotse": lambda folder, **choice: ndd.readers.Lhotse(file_of(folder), **choice),
    "readers.MXNet": lambda folder, **choice: ndd.readers.MXNet(path=file_of(folder), **choice),
    "readers.Mix": lambda folder, **choice: ndd.readers.Mix({"numbers": [1]}, **choice),
    "readers.NemoAsr": lambda folder, **choice: ndd.readers.NemoAsr(manifest_filepaths=[file_of(folder)], **choice),
    "readers.Numpy": lambda folder, **choice: drain(ndd.readers.Numpy(files=[file_of(folder)], rel_roi_shape=[0.5], **choice)),
    "readers.Parquet": lambda folder, **choice: ndd.readers.Parquet(path=file_of(folder), **choice),
    "readers.TFRecord": lambda folder, **choice: ndd.readers.TFRecord(path=file_of(folder), features={}, **choice),
    "readers.Video": lambda folder, **choice: ndd.readers.Video(filenames=[file_of(folder)], **_video, **choice),
    "readers.VideoResize": lambda folder, **choice: ndd.readers.VideoResize(filenames=[file_of(folder)], **_video, **choice),
    "readers.Webdataset": lambda folder, **choice: drain(ndd.readers.Webdataset(paths=[file_of(folder)], ext=["jpg"], **choice)),
    "experimental.readers.Fits": lambda folder, **choice: ndd.experimental.readers.Fits(files=[file_of(folder)], **choice),
    "experimental.readers.Video": lambda folder, **choice: ndd.experimental.readers.Video(filenames=[file_of(folder)], **_video, **choice),
    "readers.Weighted": lambda folder, **choice: ndd.readers.Weighted([1], weights=[1.0], **choice),
    "DataLoader": lambda folder, **choice: ndd.DataLoader([1], batch_size=1, **choice),
    "torchvision.DataLoader": lambda folder, **choice: ndd.torchvision.DataLoader(image_folder(folder) if "unknown" in choice else [1], **choice),
    "torchvision.Mixup": lambda folder, **choice: ndd.torchvision.Mixup(**choice),
    "torchvision.from_timm": lambda folder, **choice: ndd.torchvision.from_timm(**choice),
    "torchvision.from_torchvision": lambda folder, **choice: ndd.torchvision.from_torchvision([], **choice),
    "torchvision.v2.functional.clamp_bounding_boxes": lambda folder, **choice: ndd.torchvision.v2.functional.clamp_bounding_boxes(
        torch.zeros(1, 4), "XYXY", (1, 1), **choice
    ),
    "torchvision.v2.functional.pad": lambda folder, **choice: ndd.torchvision.v2.functional.pad(images(), 0, **choice),
    "torchvision.v2.functional.pad_bounding_boxes": lambda folder, **choice: ndd.torchvision.v2.functional.pad_bounding_boxes(
        torch.zeros(1, 4), "XYXY", (1, 1), 0, **choice
    ),
    "torchvision.v2.functional.pad_keypoints": lambda folder, **choice: ndd.torchvision.v2.functional.pad_keypoints(
        torch.zeros(1, 2), (1, 1), 0, **choice
    ),
    "transformers.from_naflex": lambda folder, **choice: sys.modules["torch_ndd.transformers"].from_naflex(**choice),
    "torchvision.tv_tensors.BoundingBoxes": lambda folder, **choice: ndd.torchvision.tv_tensors.BoundingBoxes(
        ndd.batch(np.zeros((1, 1, 4))), format="XYXY", canvas_size=(1, 1), **choice
    ),
    "dali.Pipeline": lambda folder, **choice: parallel_pipeline(**choice).build(),
    "dali.auto_aug.augmentations.augmentation": lambda folder, **choice: auto_aug.augmentations.augmentation(**choice)(lambda images, size: images),
    "dali.auto_aug.auto_augment.auto_augment": lambda folder, **choice: auto_aug.auto_augment.auto_augment(images(), **choice),
    "dali.experimental.torchvision.v2.functional.to_pil_image": lambda folder, **choice: to_pil_image(np.zeros((3, 3, 3), np.uint8), **choice),
    "dali.plugin.pytorch.loader_evaluator.LoaderEvaluator": lambda folder, **choice: LoaderEvaluator([[1]], **choice),
}
# An argument on which the other one depends.
NEEDED = {"cache_type": {"cache_size": 1}}


CHOICES = [*functions_with_choices(), *dali_choices()]


def call_with(name: str, folder: Path, **argument: str) -> str:
    """Return the message of a call's error with a case's other arguments; empty if it succeeds."""
    try:
        if name in CALLS:
            CALLS[name](folder, **argument)
        else:
            case = next(case for case in CASES if case.operator == name)
            (key,) = argument
            for batch in dataclasses.replace(case, args={**case.args, **NEEDED.get(key, {}), **argument}).run():
                batch.cpu()
    except Exception as error:
        return str(error)
    return ""


@pytest.mark.parametrize(("name", "argument", "strings"), CHOICES, ids=lambda value: value if isinstance(value, str) else "")
def test_literals_are_what_the_code_accepts(name: str, argument: str, strings: tuple[str, ...], tmp_path: Path) -> None:
    message = call_with(name, tmp_path, **{argument: "no such choice"})
    found = re.search(rf"{argument} must be one of (.*?), got 'no such choice'", message)
    assert found, message
    assert found[1].split(", ") == list(strings)
    for string in strings:
        assert f"{argument} must be one of" not in call_with(name, tmp_path, **{argument: string})
