# SPDX-License-Identifier: Apache-2.0
"""Loops in capture mode, and ``capture.invariant``, compared with DALI's."""

import io
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from PIL import Image

dali = pytest.importorskip("nvidia.dali.experimental.dynamic")

import torch_ndd as ndd  # noqa: E402

CENTRE = [0.25, 0.75]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder, generator, made = tmp_path_factory.mktemp("captured"), np.random.default_rng(0), []
    for k in range(14):
        file = io.BytesIO()
        Image.fromarray(generator.integers(0, 256, (20 + k, 30, 3)).astype(np.uint8)).save(file, "PNG")
        made.append(folder / f"{k:02}.png")
        made[-1].write_bytes(file.getvalue())
    return [str(path) for path in made]


def seen(module: ModuleType, files: list[str], capture: bool) -> list[Any]:
    """A loop of two epochs with literals, a marked list, and an argument that changes."""
    reader = module.readers.File(files=files)
    origin = module.capture.invariant(CENTRE)
    found: list[Any] = []
    for _ in range(2):
        for step, (encoded, labels) in enumerate(reader.next_epoch(batch_size=4, capture=capture)):
            images = module.decoders.image(encoded)
            images = module.crop(images, crop=[16, 20], crop_pos_x=origin[0], crop_pos_y=origin[1])
            flipped = module.flip(images, horizontal=step % 2)
            normal = module.crop_mirror_normalize(flipped, mean=[10.0, 20.0, 30.0], std=[2.0, 4.0, 8.0])
            found += [np.asarray(one) for batch in (normal, images, labels) for one in batch.tensors]
    return found


@pytest.mark.parametrize("capture", [False, True])
def test_a_loop_gives_the_same(files: list[str], capture: bool) -> None:
    theirs, ours = (seen(module, files, capture) for module in (dali, ndd))
    assert len(ours) == len(theirs)
    for one, other in zip(ours, theirs, strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-5)  # float32 divided by 2, and multiplied by a half


@pytest.mark.parametrize("module", [dali, ndd], ids=["dali", "ndd"])
def test_invariant_is_what_it_marks(module: ModuleType) -> None:
    invariant = module.capture.invariant
    for value in (3, 2.5, "HWC", [1, 2], (3, 4), {"a": 1}, np.arange(3)):
        marked = invariant(value)
        assert isinstance(marked, type(value))
        assert np.all(np.asarray(marked == value))
        assert invariant(marked) is marked
    assert invariant(3) + 4 == 7
    assert list(invariant([1, 2])) == [1, 2]
    assert not invariant(None)
    assert np.asarray(module.tensor(invariant([1, 2]), dtype=invariant(module.float32), layout=invariant("X"))).tolist() == [1.0, 2.0]
    assert module.random.uniform(batch_size=invariant(3)).batch_size == 3
    assert np.asarray(module.ExternalSource(invariant([[1, 2]]), layout=invariant(None))()).tolist() == [1, 2]
