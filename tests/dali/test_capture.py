# SPDX-License-Identifier: Apache-2.0
"""Loops in capture mode, and ``capture.invariant``, compared with DALI's."""

import io
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from _dali import dali
from PIL import Image

import torch_ndd as ndd

CENTER = [0.25, 0.75]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder, generator, results = tmp_path_factory.mktemp("captured"), np.random.default_rng(0), []
    for k in range(14):
        file = io.BytesIO()
        Image.fromarray(generator.integers(0, 256, (20 + k, 30, 3)).astype(np.uint8)).save(file, "PNG")
        results.append(folder / f"{k:02}.png")
        results[-1].write_bytes(file.getvalue())
    return [str(path) for path in results]


def read_all(module: ModuleType, files: list[str], capture: bool) -> list[Any]:
    """A loop of two epochs with literals, a marked list, and an argument that changes."""
    reader = module.readers.File(files=files)
    origin = module.capture.invariant(CENTER)
    found: list[Any] = []
    for _ in range(2):
        for step, (encoded, labels) in enumerate(reader.next_epoch(batch_size=4, capture=capture)):
            images = module.decoders.image(encoded)
            images = module.crop(images, crop=[16, 20], crop_pos_x=origin[0], crop_pos_y=origin[1])
            flipped = module.flip(images, horizontal=step % 2)
            normal = module.crop_mirror_normalize(flipped, mean=[10.0, 20.0, 30.0], std=[2.0, 4.0, 8.0])
            found += [np.asarray(sample) for batch in (normal, images, labels) for sample in batch.tensors]
    return found


@pytest.mark.parametrize("capture", [False, True])
def test_a_loop_gives_the_same(files: list[str], capture: bool) -> None:
    theirs, ours = (read_all(module, files, capture) for module in (dali, ndd))
    assert len(ours) == len(theirs)
    for our, other in zip(ours, theirs, strict=True):
        assert our.dtype == other.dtype
        np.testing.assert_allclose(our, other, rtol=0, atol=1e-5)  # float32 divided by 2, and multiplied by a half


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


def batches(module: ModuleType, files: list[str], **options: Any) -> Any:
    return module.readers.File(files=files, **options).next_epoch(batch_size=4, capture=True)


@pytest.mark.parametrize("when", ["before the first step", "in the loop"])
@pytest.mark.parametrize("module", [dali, ndd], ids=["dali", "ndd"])
def test_captured_reader_without_checkpointing_cannot_be_registered(module: ModuleType, when: str, files: list[str]) -> None:
    reader, checkpoint = module.readers.File(files=files), module.checkpoint.Checkpoint()
    loop = reader.next_epoch(batch_size=4, capture=True)
    if when != "before the first step" or module is ndd:  # DALI's reader is captured by the call
        next(loop)
    with pytest.raises(NotImplementedError):
        checkpoint.register(reader)


def test_reader_that_began_without_capture_raises_runtime_error(files: list[str]) -> None:
    reader = ndd.readers.File(files=files)
    next(reader.next_epoch(batch_size=4))
    with pytest.raises(RuntimeError) as caught:
        ndd.checkpoint.Checkpoint().register(reader)
    assert caught.type is RuntimeError


def labels(loop: Any) -> list[int]:
    return [int(value) for _, batch in loop for value in batch.torch().flatten()]


def test_capture_without_a_batch_size(files: list[str]) -> None:
    with pytest.raises(ValueError, match="batch_size"):
        dali.readers.File(files=files).next_epoch(capture=True)
    plain, captured = (list(ndd.readers.File(files=files).next_epoch(capture=capture)) for capture in (False, True))
    assert [value.torch().tolist() for _, value in captured] == [value.torch().tolist() for _, value in plain]
    assert len(captured) == len(files)
    assert all(isinstance(value, ndd.Tensor) for value, _ in captured)


def test_captured_loop_resumes_from_a_checkpoint(files: list[str]) -> None:
    with pytest.raises(NotImplementedError):
        batches(dali, files, enable_checkpointing=True)

    def new() -> Any:
        return ndd.readers.File(files=files, labels=list(range(14)), enable_checkpointing=True)

    def resume(capture: bool) -> list[int]:
        reader, checkpoint, restored, other = new(), ndd.checkpoint.Checkpoint(), ndd.checkpoint.Checkpoint(), new()
        checkpoint.register(reader, "reader")
        loop = reader.next_epoch(batch_size=4, capture=capture)
        assert labels([next(loop), next(loop)]) == [*range(8)]
        checkpoint.collect()
        restored.deserialize(checkpoint.serialize())
        restored.register(other, "reader")
        restored.restore()
        return labels(other.next_epoch(batch_size=4, capture=capture))

    assert resume(True)[:6] == [*range(8, 14)]
    assert resume(True) == resume(False)


def test_dropped_and_changed_invariants_are_their_values(files: list[str]) -> None:
    def run(module: ModuleType, sizes: list[Any]) -> list[Any]:
        return [
            module.resize(module.decoders.image(value), size=size).shape[0] for (value, _), size in zip(batches(module, files), sizes, strict=True)
        ]

    def drop_lists(module: ModuleType) -> list[Any]:
        return run(module, [module.capture.invariant([4, 5]), [4, 5], [4, 5], [4, 5]])

    with pytest.raises(RuntimeError):
        drop_lists(dali)
    assert drop_lists(ndd) == [(4, 5, 3)] * 4
    changed = [ndd.capture.invariant([k, 5]) for k in range(1, 5)]
    assert run(ndd, changed) == [(k, 5, 3) for k in range(1, 5)]
    assert run(dali, [dali.capture.invariant([k, 5]) for k in range(1, 5)]) == [(1, 5, 3)] * 4


def test_source_belongs_to_a_captured_loop_that_runs() -> None:
    def begun(module: ModuleType, steps: int) -> Any:
        source = module.ExternalSource([module.batch([k, k]) for k in range(4)])
        loop = source.captured(2)
        for _ in range(steps):
            next(loop)
        return int(np.asarray(source().tensors[0])), loop

    with pytest.raises(RuntimeError):
        begun(dali, 0)
    assert begun(ndd, 0)[0] == 0
    for module in (dali, ndd):
        with pytest.raises(RuntimeError):
            begun(module, 1)
