# SPDX-License-Identifier: Apache-2.0
"""Errors name the file of the sample that failed, whatever was done with it since it was read."""

import copy
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import torch_ndd as ndd
import torch_ndd.torchvision.v2.functional as functional

NAN = float("nan")
BAD = 2  # a black image, which nothing can be divided by


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("named")
    paths = [folder / f"photo_{i}.png" for i in range(4)]
    for i, path in enumerate(paths):
        Image.fromarray(np.full((8 + i, 8, 3), 0 if i == BAD else 1, np.uint8)).save(path)
    return [str(path) for path in paths]


@pytest.fixture
def images(files: list[str]) -> ndd.Batch:
    encoded, _ = next(ndd.readers.File(files=files).next_epoch(batch_size=4))
    return ndd.decoders.image(encoded)


def test_arithmetic_names_the_files_of_all_operands(files: list[str], images: ndd.Batch) -> None:
    encoded, _ = next(ndd.readers.File(files=files[::-1]).next_epoch(batch_size=4))
    others = ndd.decoders.image(encoded)
    for call in (lambda: images + others, lambda: ndd.math.clamp(1, images, others)):
        with pytest.raises(RuntimeError, match=r"photo_0.png and .*photo_3.png\)"):
            call()
    with pytest.raises(RuntimeError, match=r"sample_idx=1, [^ ]*photo_1.png\)"):
        _ = images + ndd.crop(images, crop=[8, 8])  # of the same files, which fits the first image only


def value_per_sample(bad: Any, good: Any) -> ndd.Batch:
    return ndd.batch([bad if i == BAD else good for i in range(4)])


AT_THE_CALL = {
    "resize": lambda x: ndd.resize(x, size=value_per_sample([NAN, 4.0], [4.0, 4.0])),
    "resize after a chain": lambda x: ndd.resize(ndd.flip(ndd.flip(x) + 1), size=value_per_sample([NAN, 4.0], [4.0, 4.0])),
    "crop after a chain": lambda x: ndd.crop(ndd.cast(ndd.flip(x), dtype=ndd.float32), crop=value_per_sample([20, 2], [2, 2])),
    "position of a window": lambda x: ndd.crop(ndd.flip(x), crop=[2, 2], crop_pos_x=value_per_sample(2.0, 0.5)),
    "window that is not finite": lambda x: ndd.slice(ndd.flip(x), start=value_per_sample([NAN, 0.0], [0.0, 0.0]), shape=[2, 2], axes=[0, 1]),
    "window outside": lambda x: ndd.slice(ndd.flip(x), start=value_per_sample([9, 0], [0, 0]), shape=[3, 2], axes=[0, 1]),
    "index": lambda x: (x + 1).slice[value_per_sample(90, 0)],
    "shape": lambda x: ndd.reshape(ndd.flip(x), shape=ndd.batch([[8 * 24], [9 * 24], [3], [11 * 24]])),
    "two unknown extents": lambda x: ndd.reshape(ndd.flip(x), shape=value_per_sample([-1, -1], [-1, 8])),
    "angle": lambda x: ndd.rotate(ndd.flip(x), angle=value_per_sample(NAN, 1.0)),
    "size": lambda x: ndd.rotate(ndd.flip(x), angle=1.0, size=value_per_sample([0.0, 1.0], [2.0, 2.0])),
    "alignment": lambda x: ndd.pad(ndd.flip(x), axes=[0], align=value_per_sample(0, 1)),
    "second input": lambda x: ndd.cat(ndd.batch([np.zeros((8, 7 if i == BAD else 8, 3), np.uint8) for i in range(4)]), x, axis=0),
    "values per frame": lambda x: ndd.rotate(
        ndd.as_batch(ndd.stack(x, x), layout="FHWC"), angle=ndd.per_frame(ndd.batch([[1.0] * (3 if i == BAD else 2) for i in range(4)]))
    ),
    "broadcast": lambda x: ndd.flip(x) + ndd.batch([np.zeros((8 + i, 7 if i == BAD else 8, 3), np.uint8) for i in range(4)]),
    "one sample": lambda x: ndd.crop(ndd.flip(x).tensors[BAD], crop=[20, 20]),
}


@pytest.mark.parametrize("program", AT_THE_CALL.values(), ids=AT_THE_CALL.keys())
def test_error_at_the_call_names_the_file(program: Callable[[ndd.Batch], Any], images: ndd.Batch) -> None:
    for _ in range(2):
        with pytest.raises((ValueError, RuntimeError, IndexError), match=rf"photo_{BAD}\.png"):
            program(images)


# Each returns what 5 is divided by.
QUEUED: dict[str, Callable[[ndd.Batch], Any]] = {
    "an operator": ndd.flip,
    "ten operators": lambda x: ndd.flip(ndd.copy(ndd.flip(ndd.crop(ndd.flip(ndd.copy(ndd.flip(ndd.flip(x * 1))) + 0) * 1, crop=[4, 4])))),
    "arithmetic": lambda x: (x + 0) * 1,
    "a number and a batch": lambda x: 0 + (1 * x),
    "two batches": lambda x: ndd.batch([np.ones((8 + i, 8, 3), np.uint8) for i in range(4)]) * x,
    "the other operand": lambda x: x * ndd.batch([np.ones((8 + i, 8, 3), np.uint8) for i in range(4)]),
    "math": lambda x: ndd.math.max(x, 0),
    "another type": lambda x: ndd.as_batch(x, dtype=ndd.int32),
    "another layout": lambda x: ndd.as_batch(x, layout=""),
    "a view": lambda x: ndd.reshape(ndd.flip(x), shape=[-1]),
    "a reduction": lambda x: ndd.reductions.max(ndd.flip(x)),
    "frames": lambda x: ndd.per_frame(ndd.flip(x), replace=True),
    "a part of each": lambda x: ndd.flip(x).slice[2:5, 1],
    "selected by numbers": lambda x: ndd.flip(x).select([3, BAD]),
    "selected by a slice": lambda x: ndd.flip(x).select(slice(1, 3)),
    "permuted": lambda x: ndd.permute_batch(ndd.flip(x), indices=[BAD, 0, 1, 3]),
    "joined": lambda x: ndd.as_batch([ndd.flip(x).tensors[BAD], x.tensors[0]]),
    "joined with others": lambda x: ndd.batch([np.ones((8, 8, 3), np.uint8), *ndd.flip(x).tensors]),
    "two inputs": lambda x: ndd.cat(x, ndd.copy(x)),
    "one sample": lambda x: ndd.flip(x).tensors[BAD],
    "an operator on one sample": lambda x: ndd.flip(x.tensors[BAD])[1:3],
    "one sample, repeated": lambda x: ndd.Batch.broadcast(ndd.flip(x).tensors[BAD], 3),
    "a Python function": lambda x: ndd.python_function(lambda image: image, ndd.flip(x)),
    "a Python function of known shape": lambda x: ndd.python_function(lambda image: image, ndd.flip(x), shape="same"),
    "torchvision's function": lambda x: functional.horizontal_flip(ndd.crop(x, crop=[4, 4])),
    "a copy": lambda x: copy.deepcopy(ndd.flip(x)),
    "a pickled batch": lambda x: pickle.loads(pickle.dumps(ndd.flip(x))),
}


@pytest.mark.parametrize("mode", ["deferred", "eager", "sync_cpu"])
@pytest.mark.parametrize("program", QUEUED.values(), ids=QUEUED.keys())
def test_error_of_queued_work_names_the_file(program: Callable[[ndd.Batch], Any], mode: str, images: ndd.Batch) -> None:
    with ndd.EvalMode[mode]:
        for _ in range(5):  # the fourth of equal calls is repeated without the operator's body
            with pytest.raises(ValueError, match=rf"sample.*photo_{BAD}\.png"):
                (5 // program(images)).evaluate()


def test_error_of_a_python_function_names_the_file(images: ndd.Batch) -> None:
    def failing(image: np.ndarray) -> np.ndarray:
        if not image.any():
            raise ValueError("black")
        return image

    with pytest.raises(ValueError, match=rf"sample {BAD} \(.*photo_{BAD}\.png\): ValueError: black"):
        ndd.python_function(failing, ndd.flip(images), shape="same").evaluate()


def test_compiled_fn_of_a_loader_names_the_file(files: list[str]) -> None:
    divided = torch.compile(lambda images: 5 // ndd.flip(images), backend="aot_eager")
    loader = ndd.DataLoader(ndd.readers.File(files=files), lambda encoded, labels: divided(ndd.decoders.image(encoded).evaluate()), batch_size=4)
    with pytest.raises(RuntimeError, match=rf"sample_idx={BAD}\)(?s:.*)sample {BAD} of the batch that fn was called with: .*photo_{BAD}\.png"):
        list(loader)


def test_pending_input_of_a_compiled_graph_names_the_file(images: ndd.Batch) -> None:
    same = torch.compile(lambda divided: ndd.flip(divided), backend="aot_eager")
    divided = 5 // ndd.flip(images)
    with pytest.raises(ValueError, match=rf"photo_{BAD}\.png"):
        same(divided)


def test_samples_without_a_file_get_no_name(images: ndd.Batch) -> None:
    plain = np.zeros((8, 8, 3), np.uint8)
    with pytest.raises(ValueError, match=r"by zero\. \(sample_idx=0\)"):
        (5 // ndd.batch([plain, images.tensors[0]])).evaluate()


def test_mixed_samples_get_no_name(images: ndd.Batch) -> None:
    pasted = ndd.multi_paste(images, in_ids=ndd.batch([[1], [1], [1], [1]]), output_size=[4, 4])
    with pytest.raises(RuntimeError, match=r"sample 0: the window"):
        ndd.crop(pasted, crop=[9, 9])


def test_sources_are_passed_on_without_being_formatted(files: list[str], tmp_path: Path) -> None:
    encoded, labels = next(ndd.readers.File(files=files).next_epoch(batch_size=4))
    output = ndd.flip(ndd.decoders.image(encoded)) + 1
    assert output.sources is encoded.sources
    assert list(output.select([2, 0]).sources) == [files[2], files[0]]
    assert not (labels + 1).sources
