# SPDX-License-Identifier: Apache-2.0
"""The kinds of programs that the documentation of DALI's dynamic mode shows, in a plain loop, with ``compile=True`` and with ``capture=True``.

Values, order and states of generators have to be the same. ``test_capture.py`` has what is not in the documentation.
"""

import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import torch_ndd as ndd
from torch_ndd.random import RNG

MEAN, STD = [123.675, 116.28, 103.53], [58.395, 57.12, 57.375]
Program = Callable[[Path, dict[str, Any]], Iterator[Any]]  # (data, arguments of next_epoch) -> what there is to see


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two classes of JPEGs, and arrays."""
    folder, generator = tmp_path_factory.mktemp("programs"), np.random.default_rng(0)
    for k in range(14):
        file = io.BytesIO()
        Image.fromarray(generator.integers(0, 256, (6, 5, 3)).astype(np.uint8)).resize((60 + 3 * k, 50)).save(file, "JPEG")
        path = folder / "images" / ("cat", "dog")[k % 2] / f"{k:02}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(file.getvalue())
    (folder / "arrays").mkdir()
    for k in range(9):
        np.save(folder / "arrays" / f"{k}.npy", generator.standard_normal((12, 10 + k)).astype(np.float32))
    return folder


def classification(data: Path, how: dict[str, Any]) -> Iterator[Any]:
    """Read, decode, resize, crop, mirror at random, normalise; tensors of torch for a model."""
    reader = ndd.readers.File(file_root=str(data / "images"), random_shuffle=True, seed=1)
    for _ in range(3):
        for jpegs, labels in reader.next_epoch(batch_size=4, **how):
            images = ndd.decoders.image(jpegs, output_type=ndd.types.RGB)
            images = ndd.resize(images, resize_shorter=32)
            mirror = ndd.random.coin_flip(batch_size=jpegs.batch_size)
            images = ndd.crop_mirror_normalize(images, crop=(24, 24), mirror=mirror, dtype=ndd.float32, output_layout="CHW", mean=MEAN, std=STD)
            yield images.torch(), labels.torch()


def random_rotations(data: Path, how: dict[str, Any]) -> Iterator[Any]:
    """A generator of the program's own."""
    reader, rng = ndd.readers.File(file_root=str(data / "images")), RNG(seed=42)
    for _ in range(2):
        for jpegs, _labels in reader.next_epoch(batch_size=4, **how):
            images = ndd.decoders.image(jpegs)
            angle = ndd.random.uniform(range=(-30.0, 30.0), batch_size=jpegs.batch_size, rng=rng)
            yield ndd.rotate(images, angle=angle, fill_value=0.0, keep_size=True), angle, str(rng.state)


def arithmetic_and_slices(data: Path, how: dict[str, Any]) -> Iterator[Any]:
    """Operators of Python, parts of samples, samples of a batch."""
    reader = ndd.readers.File(file_root=str(data / "images"))
    for jpegs, labels in reader.next_epoch(batch_size=5, **how):
        images = ndd.decoders.image(jpegs)
        halves = images.slice[:, :30:2]
        brighter = ndd.math.clamp(images * 1.5 + 10, 0, 255)
        yield halves, ndd.cast(brighter, dtype=ndd.uint8), labels + 1, images.tensors[0], [sample.shape for sample in images.tensors]


def modes_of_evaluation(data: Path, how: dict[str, Any]) -> Iterator[Any]:
    reader = ndd.readers.File(file_root=str(data / "images"))
    for mode in (ndd.EvalMode.deferred, ndd.EvalMode.eager, ndd.EvalMode.sync_cpu, ndd.EvalMode.sync_full):
        for jpegs, _labels in reader.next_epoch(batch_size=4, **how):
            with mode:
                images = ndd.decoders.image(jpegs)
                blurred = ndd.gaussian_blur(images, window_size=5)
            yield blurred.evaluate()


def conditions(data: Path, how: dict[str, Any]) -> Iterator[Any]:
    """Control flow of Python: on the step, on a label, on a drawn number."""
    reader = ndd.readers.File(file_root=str(data / "images"))
    ndd.random.set_seed(11)
    for step, (jpegs, labels) in enumerate(reader.next_epoch(batch_size=2, **how)):
        images = ndd.decoders.image(jpegs)
        if step % 2:
            images = ndd.flip(images, horizontal=1)
        if labels.tensors[0].item():
            images = ndd.color_twist(images, saturation=0.0)
        if float(ndd.random.uniform(range=(0.0, 1.0)).item()) > 0.5:
            images = ndd.gaussian_blur(images, sigma=1.5)
        yield ndd.resize(images, size=(20, 20))


def colours_and_noise(data: Path, how: dict[str, Any]) -> Iterator[Any]:
    """Several random arguments of one operator, and random operators."""
    reader = ndd.readers.File(file_root=str(data / "images"), random_shuffle=True, seed=9)
    for _ in range(2):
        for jpegs, labels in reader.next_epoch(batch_size=4, **how):
            images = ndd.random_resized_crop(ndd.decoders.image(jpegs), size=(24, 24))
            factors = [ndd.random.uniform(range=(0.7, 1.3), batch_size=jpegs.batch_size) for _ in ("brightness", "contrast", "saturation")]
            hue = ndd.random.uniform(range=(-20.0, 20.0), batch_size=jpegs.batch_size)
            images = ndd.color_twist(images, brightness=factors[0], contrast=factors[1], saturation=factors[2], hue=hue)
            yield ndd.noise.salt_and_pepper(ndd.noise.gaussian(images, stddev=4.0), prob=0.01), ndd.one_hot(labels, num_classes=2)


def arrays(data: Path, how: dict[str, Any]) -> Iterator[Any]:
    """Another reader, batches of different shapes, statistics of samples."""
    reader = ndd.readers.Numpy(file_root=str(data / "arrays"), file_filter="*.npy", random_shuffle=True, seed=4)
    for _ in range(2):
        for (volumes,) in ((one,) if isinstance(one, ndd.Batch) else one for one in reader.next_epoch(batch_size=3, **how)):
            centred = volumes - ndd.reductions.mean(volumes)
            yield centred, ndd.pad(volumes, fill_value=-1.0), ndd.transpose(volumes, perm=[1, 0])


def early_exit(data: Path, how: dict[str, Any]) -> Iterator[Any]:
    """An epoch that is left goes on in the next loop."""
    reader = ndd.readers.File(file_root=str(data / "images"), random_shuffle=True, seed=5)
    for _ in range(3):
        for step, (jpegs, labels) in enumerate(reader.next_epoch(batch_size=3, **how)):
            yield ndd.resize(ndd.decoders.image_random_crop(jpegs), size=(16, 16)), labels
            if step == 1:
                break


def invariants(data: Path, how: dict[str, Any]) -> Iterator[Any]:
    """Settings that an object holds, marked as constant."""

    class Settings:
        size = ndd.capture.invariant([18, 22])
        mean = ndd.capture.invariant(MEAN)

    reader, settings = ndd.readers.File(file_root=str(data / "images")), Settings()
    for jpegs, _labels in reader.next_epoch(batch_size=4, **how):
        yield ndd.crop_mirror_normalize(ndd.resize(ndd.decoders.image(jpegs), size=settings.size), mean=settings.mean, std=STD)


PROGRAMS: list[Program] = [
    *(classification, random_rotations, arithmetic_and_slices, modes_of_evaluation, conditions, colours_and_noise, arrays, early_exit, invariants)
]


def seen(program: Program, data: Path, **how: Any) -> list[Any]:
    """What a program yields, copied at once, and the default generator after each step and at the end."""
    ndd.random.set_seed(3)
    found: list[Any] = []
    for step in program(data, how):
        for one in step if isinstance(step, tuple) else (step,):
            if isinstance(one, ndd.Batch):
                found += [one.layout, *(np.asarray(sample).copy() for sample in one.tensors)]
            else:
                found.append(np.asarray(one).copy() if isinstance(one, ndd.Tensor | torch.Tensor) else one)
        found.append(str(ndd.random.get_default_rng().state))
    return [*found, str(ndd.random.get_default_rng().state)]


@pytest.mark.parametrize("how", ["compile", "capture"])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_a_program_gives_the_same(program: Program, how: str, data: Path) -> None:
    plain, other = seen(program, data), seen(program, data, **{how: True})
    assert len(plain) == len(other) > 3
    for one, expected in zip(other, plain, strict=True):
        if isinstance(expected, np.ndarray):
            assert one.dtype == expected.dtype
            np.testing.assert_array_equal(one, expected)
        else:
            assert one == expected
